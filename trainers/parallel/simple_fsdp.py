"""Fully sharded data parallelism in tensor operations that a compiler sees through (SimpleFSDP, arXiv 2411.00284).

A parameter p is a DTensor of which each rank holds a slice along the first dimension. Where a module reads its
attribute p, it gets all of it: the slices are cast to the dtype of the forward pass and gathered. The backward pass
does the transpose of that: it sums gradients over ranks in float32 and keeps this rank's slice of their mean. All the
rest, when to gather and when to drop, is up to `torch.compile`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from trainers.parallel.model_blocks import with_running_statistics
from trainers.parallel.parallel_model import ParallelModel
from trainers.parallel.redirected_calls import RedirectedCalls
from trainers.parallel.sharded_gradients import clip_sharded_gradients
from trainers.parallel.sharded_parameters import told_of_parts
from trainers.ranks.context import RankContext
from trainers.torch_internals import gathering_operations, own_parameters, storage_address


class SimplyShardedModel(ParallelModel):
    """Each rank holds one slice of every parameter, with its gradient and optimizer state; a scalar parameter whole.

    Gathered parameters are not kept for the backward pass, but gathered again there. In a step that accumulates, every
    part exchanges its gradients, so that no rank ever holds all of them.
    """

    def __init__(
        self, model: nn.Module, context: RankContext, *, mesh: DeviceMesh, dtype: torch.dtype, kind: str | None
    ) -> None:
        """`dtype`: of the gathered parameters, within autocast to the same. `kind`: as `CompiledModel` takes it; None:
        not compiled."""
        super().__init__(model, context)
        self._gathering = Gathering()
        _shard_parameters(model, mesh, self._gathering, dtype)
        if kind is None:
            call: nn.Module = _GatheringAgain(model, self._gathering)
        else:
            from trainers.parallel.compilation import CompiledModel

            call = CompiledModel(model, kind=kind)
        self._calls = RedirectedCalls(model, call)

    @property
    def forward(self) -> nn.Module:
        return self.model

    @contextmanager
    def accumulating(self, *, is_last: bool) -> Iterator[None]:
        with told_of_parts(), self._calls:
            yield

    def clip_gradients(self, max_norm: float) -> Tensor:
        return clip_sharded_gradients(self.model.parameters(), max_norm)

    @contextmanager
    def for_evaluation(self) -> Iterator[nn.Module]:
        """The whole model, as promised, on each rank, in the dtype of the forward pass, beside its slices."""
        with self._gathering.of_all(self.model):
            yield self.model


class Gathering:
    """Gathers the parameters of one model."""

    def __init__(self) -> None:
        self._whole: dict[Tensor, Tensor] | None = None
        self._sources: dict[int, tuple[StorageWeakRef, DTensor, torch.dtype]] = {}

    def __call__(self, parameter: DTensor, dtype: torch.dtype) -> Tensor:
        """All of the parameter in this dtype, with the gradient flowing back to it."""
        if self._whole is not None:
            return self._whole[parameter]
        if torch.compiler.is_compiling():
            # Tells the compiler not to keep what was gathered for the backward pass.
            whole: Tensor = checkpoint(
                _gathered, parameter, dtype, use_reentrant=False, context_fn=_recomputing_collectives
            )
            return whole
        whole = _gathered(parameter, dtype)
        if torch.is_grad_enabled():
            reference = StorageWeakRef(whole.untyped_storage())
            self._sources[storage_address(whole)] = (reference, parameter, dtype)
        return whole

    def gathering_again(self) -> AbstractContextManager[None]:
        """A context inside which gathered parameters are not kept for the backward pass, but gathered again there."""
        self._sources.clear()
        return torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)

    @contextmanager
    def of_all(self, model: nn.Module) -> Iterator[None]:
        """Every parameter of the model is gathered at once, and nothing is communicated inside."""
        with torch.no_grad():
            self._whole = {
                parameter: _gathered(parameter, module._gathered_dtype)  # type: ignore[arg-type]  # is no module
                for module in model.modules()
                for parameter in module.parameters(recurse=False)
                if isinstance(parameter, DTensor)
            }
        try:
            yield
        finally:
            self._whole = None

    def _pack(self, saved: Tensor) -> Tensor | _Dropped:
        # The weak reference keeps the address from being given to another storage.
        reference, parameter, dtype = self._sources.get(storage_address(saved), (None, None, None))
        if reference is None or parameter is None or dtype is None or reference.expired():
            # Without its history: an operation that saves its own output would keep itself alive.
            return saved.detach()
        return _Dropped(parameter, dtype, saved.size(), saved.stride(), int(saved.storage_offset()))

    def _unpack(self, packed: Tensor | _Dropped) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        with torch.no_grad():
            whole = _gathered(packed.parameter, packed.dtype)
            return whole.as_strided(packed.size, packed.stride, packed.offset)


@dataclass(frozen=True, slots=True)
class _Dropped:
    """A view of a gathered parameter that was saved for the backward pass, as a recipe."""

    parameter: DTensor
    dtype: torch.dtype
    size: torch.Size
    stride: tuple[int, ...]
    offset: int


class _GatheringAgain(nn.Module):
    """Calls a model that gathers its parameters a second time in the backward pass."""

    def __init__(self, model: nn.Module, gathering: Gathering) -> None:
        super().__init__()
        self.model = model
        self._gathering = gathering

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with self._gathering.gathering_again():
            return self.model(*args, **kwargs)


def _gathered(parameter: DTensor, dtype: torch.dtype) -> Tensor:
    whole = parameter.redistribute(placements=[Replicate()], forward_dtype=dtype, backward_dtype=torch.float32)
    return whole.to_local(grad_placements=[Partial("avg")])


_GATHERING = gathering_operations()


def _policy(_context: object, operation: object, *_args: object, **_kwargs: object) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_RECOMPUTE if operation in _GATHERING else CheckpointPolicy.MUST_SAVE


_recomputing_collectives = functools.partial(create_selective_checkpoint_contexts, _policy)


def _shard_parameters(model: nn.Module, mesh: DeviceMesh, gathering: Gathering, dtype: torch.dtype) -> None:
    """Replaces each parameter by a DTensor, in its place and under its name, and makes modules gather it on reading."""
    sharded: dict[nn.Parameter, nn.Parameter] = {}
    in_float32 = set(with_running_statistics(model))
    for module in model.modules():
        names = tuple(name for name, parameter in own_parameters(module).items() if parameter is not None)
        if not names:
            continue
        for name in names:
            parameter = own_parameters(module)[name]
            assert parameter is not None
            if parameter not in sharded:
                sharded[parameter] = _shard(parameter, mesh)
            own_parameters(module)[name] = sharded[parameter]
        module._gathering = gathering  # type: ignore[assignment]  # neither is a tensor or a module
        module._gathered_dtype = torch.float32 if module in in_float32 else dtype  # type: ignore[assignment]
        module.__class__ = _gathering_class(type(module), names)  # type: ignore[arg-type]  # classes are hashable


@torch.no_grad()
def _shard(parameter: nn.Parameter, mesh: DeviceMesh) -> nn.Parameter:
    """This rank's slice, of which the first ranks have one row more if they do not come out even."""
    placement: Placement
    if parameter.ndim == 0:
        local, placement = parameter.clone(), Replicate()
    else:
        slices, rank = parameter.chunk(mesh.size()), mesh.get_local_rank()
        local = slices[rank].clone() if rank < len(slices) else parameter.new_empty((0, *parameter.shape[1:]))
        placement = Shard(0)
    # Not `distribute_tensor`, which on CUDA devices sets the random generators of all ranks alike.
    whole = DTensor.from_local(
        local, mesh, [placement], run_check=False, shape=parameter.shape, stride=parameter.stride()
    )
    return nn.Parameter(whole, requires_grad=parameter.requires_grad)


@functools.cache  # one class for all modules of a kind: compiled code is specialised on it
def _gathering_class(cls: type[nn.Module], names: tuple[str, ...]) -> type[nn.Module]:
    attributes: dict[str, Any] = {name: _attribute(name) for name in names}
    return type(cls.__name__, (cls,), {**attributes, "__module__": cls.__module__})


def _attribute(name: str) -> property:
    def read(module: nn.Module) -> Tensor:
        gathering: Gathering = module._gathering  # type: ignore[assignment]  # as it was set
        return gathering(own_parameters(module)[name], module._gathered_dtype)  # type: ignore[arg-type]

    return property(read)
