"""Data parallelism: each rank has the whole model (`ddp`), and gradients are averaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainers.config import CompressionConfig, InvalidConfig
from trainers.parallel.parallel_model import ParallelModel
from trainers.parallel.redirected_calls import RedirectedCalls
from trainers.ranks.context import RankContext, synchronise_buffers
from trainers.torch_internals import ignore_in_replicas, lay_out_final_buckets

if TYPE_CHECKING:
    from trainers.parallel.compression import GradientCompression

BUCKET_BYTES = 25 * 2**20
"""Gradients that are exchanged at once in the first step; the size of DDP's own buckets."""


class ReplicatedModel(ParallelModel):
    """Each rank has the whole model; with one rank, it is the plain model.

    The first step runs without `DistributedDataParallel`, and gradients are averaged after it: then it is known which
    parameters get no gradient on any rank, e.g. those of a layer that the loss does not reach. DDP would wait for them
    in vain, or else search the graph for them in every step; like this it is told to ignore them. A parameter that gets
    its first gradient later is an error: ranks would not exchange it. So is one that has none later: others would wait
    for it.

    The loss has the model itself, with its attributes and methods, of which a replica has other ones. A step whose loss
    calls parts of the model and never the model, so that the replica learns nothing of it, goes like the first.
    """

    def __init__(
        self,
        model: nn.Module,
        context: RankContext,
        *,
        call: nn.Module | None,
        compression: CompressionConfig | None,
        seed: int,
    ) -> None:
        """`call`: the module that calls the model in training, e.g. compiled; None: the model itself."""
        super().__init__(model, context)
        self._call = model if call is None else call
        self._compiled = None if call is None else RedirectedCalls(model, call)
        self._replica: _Replica | None = None
        self._without_gradient: list[str] | None = None
        self._compression: GradientCompression | None = None
        if compression is not None and context.world_size > 1:
            from trainers.parallel.compression import GradientCompression  # loads NumPy, which most trials do not need

            self._compression = GradientCompression(compression, seed=seed)

    @property
    def forward(self) -> nn.Module:
        return self.model

    def accumulating(self, *, is_last: bool) -> AbstractContextManager[object]:
        if self.context.world_size == 1:
            return self._compiled or nullcontext()
        if self._without_gradient is None:
            return self._first_step() if is_last else nullcontext()
        if self._replica is None:
            self._replica = self._replicate(self._without_gradient)
        return self._later_step(self._replica, is_last=is_last)

    def clip_gradients(self, max_norm: float) -> Tensor:
        return nn.utils.clip_grad_norm_(self.model.parameters(), max_norm)

    @contextmanager
    def for_evaluation(self) -> Iterator[nn.Module]:
        yield self.model

    def state_dict(self) -> dict[str, Any]:
        """Names of the parameters without gradient, once known, and what compression remembers."""
        state: dict[str, Any] = {}
        if self._without_gradient is not None:
            state["without_gradient"] = list(self._without_gradient)
        if self._compression is not None:
            state["compression"] = self._compression.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._replica = None
        self._without_gradient = state.get("without_gradient")
        if self._compression is not None and "compression" in state:
            self._compression.load_state_dict(state["compression"], device=self.context.device)

    @property
    def num_elements_sent(self) -> tuple[int, int]:
        """Elements of gradients that this rank sent in compressed steps, and would have sent without compression.

        Raises:
            ValueError: nothing is compressed.
        """
        if self._compression is None:
            raise ValueError("gradients are not compressed in this trial")
        return self._compression.num_elements_sent

    @contextmanager
    def _first_step(self) -> Iterator[None]:
        yield
        self._without_gradient = self._average_after_backward()

    @contextmanager
    def _later_step(self, replica: _Replica, *, is_last: bool) -> Iterator[None]:
        with replica.calls as calls, nullcontext() if is_last else replica.module.no_sync():
            yield
        if not is_last:
            return
        if calls.has_trained:
            missing = [name for name, parameter in replica.awaited if parameter.grad is None]
            if missing:
                raise RuntimeError(
                    f"{_listed(missing)} had a gradient in the first step and none now: {_SAME_PARAMETERS}"
                )
            return
        if self._compression is not None:
            raise InvalidConfig("compression", "needs a loss that calls the model itself, and not only its parts")
        self._average_after_backward()
        synchronise_buffers(self.model, self.context)  # as the replica does

    def _average_after_backward(self) -> list[str]:
        """Replaces gradients by their means over ranks; gives the parameters without one on any rank."""
        named = [(name, parameter) for name, parameter in self.model.named_parameters() if parameter.requires_grad]
        has_gradient = torch.tensor([parameter.grad is not None for _, parameter in named], dtype=torch.uint8)
        has_gradient = has_gradient.to(self.context.device)
        dist.all_reduce(has_gradient, op=dist.ReduceOp.MAX)
        used = [bool(flag) for flag in has_gradient.tolist()]
        for (_, parameter), is_used in zip(named, used, strict=True):
            if is_used and parameter.grad is None:  # on this rank alone
                parameter.grad = torch.zeros_like(parameter)
        _average([parameter.grad for _, parameter in named if parameter.grad is not None])
        return [name for (name, _), is_used in zip(named, used, strict=True) if not is_used]

    def _replicate(self, without_gradient: Sequence[str]) -> _Replica:
        on_cuda = self.context.device.startswith("cuda")
        for name in without_gradient:
            self.model.get_parameter(name).register_post_accumulate_grad_hook(_refusal(name))
        ignored = {id(self.model.get_parameter(name)) for name in without_gradient}
        names = [name for name, parameter in self._call.named_parameters() if id(parameter) in ignored]
        ignore_in_replicas(self._call, names)
        replica = DistributedDataParallel(
            self._call,
            device_ids=[torch.device(self.context.device)] if on_cuda else None,
            gradient_as_bucket_view=True,  # no second copy of the gradients
            init_sync=False,  # they are equal already
        )
        if not on_cuda or self._compression is not None:
            # After its first backward pass DDP lays its buckets out anew, in the order in which gradients became ready.
            # From three ranks on, the order in which gloo adds an element up depends on its place in the bucket, so the
            # first step after a resume would round otherwise than the same step of an uninterrupted run; and what
            # compression remembers is laid out as the buckets are. Laying the final buckets out at once, in the order
            # of the parameters, makes all steps alike.
            lay_out_final_buckets(replica)
        if self._compression is not None:
            self._compression.attach(replica)
        awaited = [(name, x) for name, x in self.model.named_parameters() if x.requires_grad and id(x) not in ignored]
        return _Replica(replica, RedirectedCalls(self.model, replica), awaited)


@dataclass(frozen=True, slots=True)
class _Replica:
    """A model's replica."""

    module: DistributedDataParallel
    calls: RedirectedCalls
    """The model's calls, led to the replica."""
    awaited: Sequence[tuple[str, nn.Parameter]]
    """The parameters whose gradients ranks exchange, by name."""


_SAME_PARAMETERS = (
    "ddp exchanges gradients of the same parameters in every step (add 0 times the sum of a part that a step may leave "
    "out to the loss, or train on one rank)"
)


def _refusal(name: str) -> Callable[[Tensor], None]:
    """A hook that raises when the parameter gets a gradient after all."""

    def refuse(_: Tensor) -> None:
        raise RuntimeError(f"parameter {name} had no gradient in the first step and has one now: {_SAME_PARAMETERS}")

    return refuse


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"parameter {names[0]}{more}"


def _average(gradients: Sequence[Tensor]) -> None:
    """Replaces gradients by their means over ranks."""
    world_size = dist.get_world_size()
    for bucket in _buckets(gradients):
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        dist.all_reduce(flat)
        flat /= world_size
        means = torch.split(flat, [gradient.numel() for gradient in bucket])
        for gradient, mean in zip(bucket, means, strict=True):
            gradient.copy_(mean.view_as(gradient))


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """The tensors in order, in lists of one dtype and, unless it is one tensor, of at most `BUCKET_BYTES`."""
    bucket: list[Tensor] = []
    num_bytes = 0
    for tensor in tensors:
        if bucket and (num_bytes + tensor.nbytes > BUCKET_BYTES or tensor.dtype != bucket[0].dtype):
            yield bucket
            bucket, num_bytes = [], 0
        bucket.append(tensor)
        num_bytes += tensor.nbytes
    if bucket:
        yield bucket
