"""The agreement of ranks on the plain parameters that they share: all must give the optimizer the same, in the same
order.

Each rank plans the ownership by itself. Ranks whose plans differ would send each other weights of other parameters, and
train them silently if the sizes happen to fit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from shampoo.distributed.collectives import all_gather
from shampoo.distributed.layout import is_dtensor
from shampoo.distributed.placement import Groups, is_shared
from shampoo.hyperparameters import Hyperparameters

SHARING = ("distributed", "communication_dtype", "num_ranks_per_group", "reduce_gradients")
"""The hyperparameters that decide which rank steps what, and how."""


def fixed_structure(h: Hyperparameters) -> dict[str, object]:
    """The values that must stay as they were when the state was allocated: its structure, and the sharing among ranks,
    which is not part of a checkpoint."""
    return {**h.structure, **{name: getattr(h, name) for name in SHARING}}


def require_agreement(groups: Groups) -> None:
    """Checks that all ranks share plain parameters of the same shapes, dtypes and structure of state in the same order;
    collective if there are any to share. Equal parameters in another order are not noticed.

    Raises:
        ValueError: they do not, on every rank.
    """
    shared = [
        (param, f"{number} {tuple(param.shape)} {param.dtype} {fixed_structure(h)}")
        for number, (params, h) in enumerate(groups)
        for param in params
        if is_shared(param, h) and not is_dtensor(param)
    ]
    if not shared:
        return
    device = shared[0][0].device
    digests = [_digest(described) for _, described in shared]
    by_rank = _of_all_ranks([len(digests), _digest(str(digests))], device)
    others = [rank for rank, found in enumerate(by_rank) if found != by_rank[0]]
    if not others:
        return
    problem = f"{len(shared)} on this rank, and {[count for count, _ in by_rank]} on all of them, from rank 0 on"
    if len({count for count, _ in by_rank}) == 1:
        by_parameter = list(zip(*_of_all_ranks(digests, device), strict=True))
        first = next(index for index, found in enumerate(by_parameter) if len(set(found)) > 1)
        shape = tuple(shared[first][0].shape)
        problem = f"the {len(shared)} differ from number {first} on, of shape {shape} on this rank"
    raise ValueError(
        f"ranks {others} share other parameters than rank 0 (distributed='lossless'): {problem}. Give the optimizer "
        "the same parameters on all ranks, in the same order and with the same hyperparameters"
    )


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)


def _of_all_ranks(numbers: Sequence[int], device: torch.device) -> list[list[int]]:
    """The numbers of all ranks, equally many from each, on the device of the process group."""
    world = dist.group.WORLD
    assert world is not None
    own = torch.tensor(numbers, dtype=torch.int64, device=device)
    gathered: Tensor = own.new_empty(len(numbers) * world.size())
    all_gather("comparing the parameters that ranks share", gathered, own, world).wait()
    return [part.tolist() for part in gathered.view(world.size(), -1)]
