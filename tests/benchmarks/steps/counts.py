"""Counts of one step while it runs: operations of aten, floating-point operations, reads by the host, memory.

On the meta device tensors have shapes and no values: a step takes the path of an accelerator (whole buckets, no cache
to fit into) at any size of model, and nothing is computed. Where the host reads a value there, the read is counted and
answered as if all went well: no to `any` (has one failed?), yes to other questions (are all finite?), or zero.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._C._autograd import DeviceType
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.weak import WeakIdKeyDictionary

_ALLOCATIONS = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_"})
_READS = frozenset({"_local_scalar_dense", "is_nonzero", "nonzero", "equal", "masked_select"})
_NO_KERNEL = _ALLOCATIONS | frozenset(
    {"_local_scalar_dense", "lift_fresh", "_unsafe_view", "transpose_", "squeeze_", "promote_types"}
)
_WRITES = frozenset({"copy_", "_foreach_copy_", "fill_", "zero_"})
"""Operations that do not read what they write to."""
# What a tensor answers to the host in one call that never reaches the dispatcher, or cannot on the meta device.
_HOST_METHODS: Mapping[str, Callable[[Tensor], object]] = {
    "tolist": lambda x: _answer(x).tolist(),
    "item": lambda x: _answer(x.new_empty(())).item(),
    "cpu": lambda x: _answer(x),
    "numpy": lambda x: _answer(x).numpy(),
    "__bool__": lambda _: True,
    "__int__": lambda _: 0,
    "__index__": lambda _: 0,
    "__float__": lambda _: 0.0,
}


def _answer(x: Tensor) -> Tensor:
    return torch.full(x.shape, x.dtype == torch.bool, dtype=x.dtype, device="cpu")


def _product_added(_target: torch.Size, left: torch.Size, right: torch.Size, **_: Any) -> int:
    """2·K·m·k·n for a (K, m, k) times (K, k, n) product; K may be missing."""
    return 2 * math.prod(left) * right[-1]


# The counter knows these only where they do not work in place.
_IN_PLACE_PRODUCTS = {torch.ops.aten.baddbmm_: _product_added, torch.ops.aten.addmm_: _product_added}


@dataclass(frozen=True, slots=True)
class StepCounts:
    """One step."""

    operations: Counter[str]
    """Operations of aten other than views and allocations, by name: at least one kernel launch each on an accelerator.
    Those between tensors of the host are left out where the parameters are elsewhere."""
    num_strided: int
    """Launches beyond one for each operation, in operations on lists of tensors that do not lie in memory alike: torch
    then launches one for each."""
    bytes_moved: int
    """Read and written by operations other than matrix products, as if nothing stayed in a cache."""
    floating_point_operations: int
    """Operations of matrix products, as `FlopCounterMode` counts them."""
    host_reads: Counter[str]
    """Values that the host waited for, by operation. On the CPU reads of tensors that lie there anyway."""
    scratch_bytes: int
    """Most memory in use at once beside what there was before the first counted step; what a step leaves behind for
    the next ones is part of it."""

    @property
    def num_operations(self) -> int:
        return self.operations.total()

    @property
    def num_launches(self) -> int:
        return self.num_operations + self.num_strided


class Scratch:
    """Memory that operations have allocated, followed from step to step."""

    def __init__(self) -> None:
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}
        self._at_most = 0
        self.peak = 0

    def restart(self) -> None:
        """Begins a new peak; what is still in use counts on."""
        self._at_most = self.peak = self._total()

    def record(self, inputs: Iterable[object], outputs: Iterable[object]) -> None:
        """Takes note of an operation: storage that it gives and was not given is new."""
        given = {_address(x) for x in inputs if isinstance(x, Tensor)}
        for x in outputs:
            if isinstance(x, Tensor) and _address(x) not in given:
                storage = x.untyped_storage()
                self._live[_address(x)] = (StorageWeakRef(storage), storage.nbytes())
                self._at_most += storage.nbytes()
        if self._at_most > self.peak:  # else what has been freed need not be known
            self._at_most = self._total()
            self.peak = max(self.peak, self._at_most)

    def _total(self) -> int:
        self._live = {key: entry for key, entry in self._live.items() if not entry[0].expired()}
        return sum(nbytes for _, nbytes in self._live.values())


class _Operations(TorchDispatchMode):
    def __init__(self, device: str, scratch: Scratch | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch
        self.launches: Counter[str] = Counter()
        self.num_strided = 0
        self.bytes_moved = 0
        self.reads: Counter[str] = Counter()
        self._device = device
        self._scratch = scratch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        inputs = list(tree_iter((args, kwargs)))
        outputs = list(tree_iter(result))
        on_device = any(isinstance(x, Tensor) and x.device.type == self._device for x in (*inputs, *outputs))
        name = func._schema.name.removeprefix("aten::")
        if on_device:
            if self._scratch is not None:
                self._scratch.record(inputs, outputs)
            if name in _READS:
                self.reads[name] += 1
            if name not in _NO_KERNEL and not _is_view(func):
                self.launches[name] += 1
                self.num_strided += _num_kernels(name, args) - 1
                if "mm" not in name:
                    self.bytes_moved += _bytes_moved(func, args, kwargs, outputs)
        return result


class _HostReads(TorchFunctionMode):
    """Counts and answers what the host asks of tensors on the meta device; elsewhere counts what has no operation."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()
        self._device = device
        self._any = WeakIdKeyDictionary()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _HOST_METHODS and isinstance(args[0], Tensor) and args[0].device.type == self._device:
            if self._device == "meta":
                self.reads[name] += 1
                return False if args[0] in self._any else _HOST_METHODS[name](args[0])
            if name in ("tolist", "numpy"):
                self.reads[name] += 1
        result = func(*args, **(kwargs or {}))
        if name == "any" and self._device == "meta":
            self._any[result] = None
        return result


def count_step(step: Callable[[], object], *, device: str, scratch: Scratch) -> StepCounts:
    """Takes a step and counts.

    Args:
        step: to be called once.
        device: type of the parameters' device.
        scratch: the same for all steps of an optimizer, from the first one on.
    """
    scratch.restart()
    operations, host = _Operations(device, scratch), _HostReads(device)
    with FlopCounterMode(display=False, custom_mapping=_IN_PLACE_PRODUCTS) as products, operations, host:
        step()
    return StepCounts(
        operations=operations.launches,
        num_strided=operations.num_strided,
        bytes_moved=operations.bytes_moved,
        floating_point_operations=products.get_total_flops(),
        host_reads=operations.reads + host.reads,
        scratch_bytes=scratch.peak,
    )


def count_launches(step: Callable[[], object], *, device: str) -> int:
    """Takes a step and gives `StepCounts.num_launches` alone, in half the time."""
    operations = _Operations(device, None)
    with operations, _HostReads(device):
        step()
    return operations.launches.total() + operations.num_strided


class _Products(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch
        self.num_batched = 0
        self.operations = 0
        self._formulas = FlopCounterMode(display=False, custom_mapping=_IN_PLACE_PRODUCTS).flop_registry

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        formula = self._formulas.get(func._overloadpacket)
        if formula is not None:
            self.num_batched += "bmm" in func._schema.name
            self.operations += formula(*args, **kwargs, out_val=result)
        return result


def count_products(step: Callable[[], object]) -> tuple[int, int]:
    """Takes a step and gives its batched matrix products and `StepCounts.floating_point_operations` alone, in a third
    of the time."""
    with _Products() as products:
        step()
    return products.num_batched, products.operations


def take_step(step: Callable[[], object], *, device: str) -> None:
    """Takes a step and counts nothing; on the meta device the host's reads are answered as in one that counts."""
    with _HostReads(device):
        step()


def count_kernels(step: Callable[[], object]) -> tuple[int, int]:
    """Kernels (copies included) and waits of the host in one step on a CUDA device, as the profiler sees them."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=activities) as profile:
        step()
    events = profile.events()
    kernels = sum(event.device_type == DeviceType.CUDA for event in events)
    waits = sum(event.name in ("cudaStreamSynchronize", "cudaDeviceSynchronize") for event in events)
    # The profiler itself waits for the device once, at the end.
    return kernels, max(0, waits - 1)


def allocated_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the memory behind these tensors, each piece counted once."""
    return sum({_address(x): x.untyped_storage().nbytes() for x in tensors}.values())


def _address(x: Tensor) -> int:
    # Not data_ptr(): that is 0 for everything on the meta device.
    address: int = x.untyped_storage()._cdata
    return address


def _num_kernels(name: str, args: Any) -> int:
    """One for most; where tensors of a list lie in memory otherwise than those of the other, one for each of them."""
    if not name.startswith("_foreach_"):
        return 1
    lists = [x for x in args if isinstance(x, list | tuple)]
    alike = all(
        x.is_contiguous() and all(y.shape == x.shape and y.stride() == x.stride() for y in others)
        for x, *others in zip(*lists, strict=True)
    )
    return 1 if alike else len(lists[0])


def _bytes_moved(func: Any, args: Any, kwargs: Any, outputs: Iterable[object]) -> int:
    """Bytes that an operation reads and writes."""
    arguments = func._schema.arguments
    given = zip(arguments, (*args, *(kwargs.get(argument.name) for argument in arguments[len(args) :])), strict=True)
    read: dict[int, int] = {}
    written: dict[int, int] = {}
    for argument, value in given:
        sizes = {id(x): _extent(x) for x in tree_iter(value) if isinstance(x, Tensor)}
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        # torch's fused kernels write to gradients only to unscale them.
        if is_written and not (argument.name == "grads" and kwargs.get("grad_scale") is None):
            written |= sizes
        if not (is_written and (argument.is_out or func._schema.name.removeprefix("aten::") in _WRITES)):
            read |= sizes
    if not written:
        written = {id(x): _extent(x) for x in outputs if isinstance(x, Tensor)}
    return sum(read.values()) + sum(written.values())


def _extent(x: Tensor) -> int:
    """Bytes of the elements of a tensor, those of a broadcast dimension once."""
    sizes = (size for size, stride in zip(x.shape, x.stride(), strict=True) if stride != 0)
    return math.prod(sizes) * x.element_size()


def _is_view(func: Any) -> bool:
    aliases = [value.alias_info for value in func._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)
