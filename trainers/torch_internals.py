"""All that training touches of torch's private parts, each with the reason; all of it was tried with torch 2.13.

A new version of torch is to be tried on the tests of what is named here: `trainers.parallel`, `trainers.checkpoints`
and `trainers.workloads.huggingface`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

# How a model runs without data in it, and the errors of one whose computation depends on values: `torch.compiler` and
# `torch.export` use them, and there is no public name.
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

# As DDP's constructor uses it; the public constructor begins to average gradients, too.
from torch.distributed.utils import _sync_module_states

# Batch and instance normalisation of every dimension, with their running statistics: the public classes have no other
# base in common.
from torch.nn.modules.batchnorm import _NormBase as NormWithStatistics
from torch.nn.parallel import DistributedDataParallel

__all__ = [
    "NOT_WITHOUT_DATA",
    "FakeTensorMode",
    "NormWithStatistics",
    "gathering_operations",
    "group_timeout",
    "ignore_in_replicas",
    "lay_out_final_buckets",
    "norms_of",
    "own_parameters",
    "scale",
    "send_from_first_rank",
    "storage_address",
]

NOT_WITHOUT_DATA: tuple[type[RuntimeError], ...] = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    # The model makes tensors on the CPU itself. Before torch 2.13 that was a RuntimeError like any other.
    *([fake_tensor.FakeTensorDeviceMismatchError] if hasattr(fake_tensor, "FakeTensorDeviceMismatchError") else []),
)
"""The errors of a model that does not run without data in it, though it may run with data."""


def group_timeout(group: dist.ProcessGroup, device: str) -> timedelta:
    """The time that collectives of a group wait for other ranks; torch tells it in no public way."""
    timeout: timedelta = group._get_backend(torch.device(device)).options._timeout
    return timeout


def send_from_first_rank(module: nn.Module, *, bucket_bytes: int) -> None:
    """Gives all ranks the parameters and buffers of the first one, so many bytes at a time. Every rank calls it."""
    _sync_module_states(module, dist.group.WORLD, bucket_bytes, 0, ())  # type: ignore[arg-type]


def ignore_in_replicas(module: nn.Module, names: Sequence[str]) -> None:
    """Makes DDP replicas of the module skip these parameters, which no gradient reaches.

    The public way, `find_unused_parameters`, searches the graph in every step.
    """
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, list(names))


def lay_out_final_buckets(replica: DistributedDataParallel) -> None:
    """Lays out DDP's buckets at once, in the order of the parameters. DDP would lay them out after its first backward
    pass, in the order in which gradients became ready.

    DDP has no public way to ask for it but `find_unused_parameters`, which costs another collective per step.
    """
    replica.reducer._push_all_rebuilt_params()
    replica.reducer._rebuild_buckets()


def norms_of(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The 2-norm of each tensor, in few launches; the public functions launch one per tensor."""
    return list(torch._foreach_norm(list(tensors)))


def scale(tensors: Iterable[Tensor], factor: Tensor) -> None:
    """Multiplies all tensors by a scalar on their device, in few launches."""
    torch._foreach_mul_(list(tensors), factor)


def own_parameters(module: nn.Module) -> dict[str, nn.Parameter | None]:
    """The module's own parameters by attribute, to be replaced in place.

    Plain access to an attribute would meet the property that gathers a sharded parameter.
    """
    return module._parameters


def storage_address(tensor: Tensor) -> int:
    """An integer that two tensors share if their storage is the same one, as `torch.multiprocessing` compares them.

    `data_ptr()` is no such thing while a graph is traced, and is 0 of every empty tensor.
    """
    address: int = tensor.untyped_storage()._cdata
    return address


def gathering_operations() -> tuple[Any, ...]:
    """The operations that a compiler sees of a gathered DTensor: the cast, the collective and the wait for it."""
    collectives = torch.ops._c10d_functional
    return (
        collectives.all_gather_into_tensor.default,
        collectives.wait_tensor.default,
        torch.ops.aten._to_copy.default,
    )
