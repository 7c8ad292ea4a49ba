"""Fully sharded data parallelism with torch's `fully_shard`: `fsdp2` over all ranks, `hsdp` within groups of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from trainers.parallel.compilation import run_uncompiled
from trainers.parallel.model_blocks import with_running_statistics
from trainers.parallel.parallel_model import ParallelModel
from trainers.parallel.sharded_gradients import clip_sharded_gradients
from trainers.parallel.sharded_parameters import told_of_parts
from trainers.ranks.context import RankContext


class FullyShardedModel(ParallelModel):
    """Each rank holds one part of every parameter, along its first dimension, with its gradient and optimizer state.

    The parameters of a block are gathered when it is called, in the forward pass and again in the backward pass, and
    dropped after it; those outside of blocks stay from the beginning of the step to the end of it.

    Within a step that accumulates, gradients of whole parameters are kept until its last part: memory for another
    model, for exchanging them once.
    """

    def __init__(
        self,
        model: nn.Module,
        context: RankContext,
        *,
        mesh: DeviceMesh,
        blocks: Sequence[nn.Module],
        dtype: torch.dtype,
    ) -> None:
        """`dtype`: of the gathered parameters, within autocast to the same; gradients are summed over ranks in float32,
        in which the parts stay."""
        super().__init__(model, context)
        policy = MixedPrecisionPolicy()
        if dtype != torch.float32:
            # Autocast is left to cast what goes into an operation, as with the other modes: torch's policy would round
            # the model's inputs, of whatever meaning, and the residual stream.
            policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
            for module in with_running_statistics(model):
                fully_shard(module, mesh=mesh)
        for block in _with_parameters_of_their_own(blocks, model):
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)

    @property
    def forward(self) -> nn.Module:
        return self.model

    @contextmanager
    def accumulating(self, *, is_last: bool) -> Iterator[None]:
        _fsdp(self.model).set_requires_gradient_sync(is_last)
        with told_of_parts():
            yield

    def clip_gradients(self, max_norm: float) -> Tensor:
        return clip_sharded_gradients(self.model.parameters(), max_norm)

    @contextmanager
    def for_evaluation(self) -> Iterator[nn.Module]:
        """The whole model, as promised, on each rank, in the dtype of the forward pass, beside its parts."""
        with ExitStack() as stack:
            for module in self.model.modules():
                if isinstance(module, FSDPModule):
                    stack.enter_context(_gathered(module, is_root=module is self.model))
            stack.enter_context(run_uncompiled())
            yield self.model


@contextmanager
def _gathered(module: FSDPModule, *, is_root: bool) -> Iterator[None]:
    module.set_reshard_after_forward(False, recurse=False)
    module.unshard()
    try:
        yield
    finally:
        module.reshard()
        module.set_reshard_after_forward(not is_root, recurse=False)


def _fsdp(module: nn.Module) -> FSDPModule:
    assert isinstance(module, FSDPModule)
    return module


def _with_parameters_of_their_own(blocks: Sequence[nn.Module], model: nn.Module) -> Iterator[nn.Module]:
    """The blocks that share no parameter with the rest of the model.

    A parameter that two modules share, e.g. an embedding that is also the output layer, must be gathered where either
    is called: such blocks are left to the model as a whole.
    """
    uses = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    for block in blocks:
        own = Counter(id(parameter) for _, parameter in block.named_parameters(remove_duplicate=False))
        if (
            own
            and not isinstance(block, FSDPModule)
            and all(uses[parameter] == count for parameter, count in own.items())
        ):
            yield block
