"""Data parallelism: each rank has the whole model (`ddp`), and gradients are averaged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainers.distributed import RankContext
from trainers.parallel_model import ParallelModel


class ReplicatedModel(ParallelModel):
    """Each rank has the whole model; with one rank, it is the plain model."""

    is_sharded: ClassVar[bool] = False

    def __init__(self, model: nn.Module, context: RankContext) -> None:
        super().__init__(model, context)
        self._forward = model if context.world_size == 1 else _replica(model, context)

    @property
    def forward(self) -> nn.Module:
        return self._forward

    def accumulating(self, *, is_last: bool) -> AbstractContextManager[None]:
        if is_last or not isinstance(self._forward, DistributedDataParallel):
            return nullcontext()
        no_sync: AbstractContextManager[None] = self._forward.no_sync()  # type: ignore[no-untyped-call]
        return no_sync

    def clip_gradients(self, max_norm: float) -> Tensor:
        return nn.utils.clip_grad_norm_(self.model.parameters(), max_norm)

    @contextmanager
    def for_evaluation(self) -> Iterator[nn.Module]:
        yield self.model


def _replica(model: nn.Module, context: RankContext) -> DistributedDataParallel:
    """The module that averages gradients over ranks in its backward pass. Starts from rank 0's parameters."""
    on_cuda = context.device.startswith("cuda")
    replica = DistributedDataParallel(
        model,
        device_ids=[torch.device(context.device)] if on_cuda else None,
        gradient_as_bucket_view=True,  # no second copy of the gradients
    )
    if not on_cuda:
        # After its first backward pass DDP lays its buckets out anew, in the order in which gradients became ready.
        # From three ranks on, the order in which gloo adds an element up depends on its place in the bucket, so the
        # first step after a resume would round otherwise than the same step of an uninterrupted run. Laying the final
        # buckets out at once, in the order of the parameters, makes all steps alike. DDP has no public way to ask for
        # it but `find_unused_parameters`, which costs another collective per step.
        replica.reducer._push_all_rebuilt_params()
        replica.reducer._rebuild_buckets()
    return replica
