"""Leaving the process group, once all that parallel models left in the process is dropped."""

from __future__ import annotations

import gc

import torch.distributed as dist

from trainers.parallel.compilation import forget_compiled_code
from trainers.parallel.device_meshes import forget_device_meshes


def leave_process_group() -> None:
    """Leaves the process group; all ranks call it, with no trial under way. Does nothing outside a group.

    A rank that failed must not call it: its peers are in other collectives, and it would wait for them until the
    timeout. Let such a process end instead.
    """
    if not dist.is_initialized():
        return
    # Destroying a gloo group while a DistributedDataParallel module is alive aborts the process now and then
    # ("terminate called without an active exception", torch 2.13). A finished trial drops its module, and cycles
    # that still hold one are collected here, before any rank tears the group down.
    forget_compiled_code()
    forget_device_meshes()
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()
