"""Meshes of the ranks of the process group: made once, and used by every trial until the group is left.

A mesh of two dimensions makes process groups, which cost milliseconds, threads and sockets each; hundreds of trials
follow each other in one process.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


@functools.cache
def device_mesh(*, device_type: str, world_size: int, shard_size: int) -> DeviceMesh:
    """All ranks, in groups of `shard_size` that follow each other and share one copy of a model.

    One dimension, `shard`, if that is all of them; else `replicate` and `shard`. All ranks call it together.
    """
    # Not at the top: it takes half as long as importing torch itself, and most trials need no mesh.
    from torch.distributed.device_mesh import init_device_mesh

    if shard_size == world_size:
        return init_device_mesh(device_type, (world_size,), mesh_dim_names=("shard",))
    sizes = (world_size // shard_size, shard_size)
    return init_device_mesh(device_type, sizes, mesh_dim_names=("replicate", "shard"))


def forget_device_meshes() -> None:
    """Drops the meshes of a process group that is about to be destroyed."""
    device_mesh.cache_clear()
