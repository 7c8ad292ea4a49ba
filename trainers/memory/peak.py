"""The peak of this process's memory during a trial, and the bytes of an optimizer's state."""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from torch.optim import Optimizer

from shampoo import WeightAveraging
from shampoo.distributed.shards import local_part

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")
_RESET_PEAK = "5"
"""See proc(5): sets the peak of resident memory back to what is resident now."""


def reset_peak(device: str) -> None:
    """Forgets earlier peaks, where the system lets it: a warm process trains many trials."""
    if device.startswith("cuda"):
        torch.cuda.init()  # a process that has not yet used its device has no statistics to reset
        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:  # no Linux, or not permitted: the peak is then that of the process's life
        return


def peak_bytes(device: str) -> int:
    """The most memory held since `reset_peak`: by torch on a CUDA device, else by this whole process."""
    if device.startswith("cuda"):
        return int(torch.cuda.max_memory_allocated(device))
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def state_bytes(optimizer: Optimizer) -> int:
    """Bytes of the tensors an optimizer keeps on this rank, averaged weights included; of sharded ones its part."""
    kept = [optimizer.state, optimizer.averages] if isinstance(optimizer, WeightAveraging) else [optimizer.state]
    return sum(bytes_of_state(state) for by_parameter in kept for state in by_parameter.values())


def bytes_of_state(value: object) -> int:
    """Bytes of the tensors in a part of a state; of sharded ones, of this rank's part."""
    match value:
        case Tensor():
            return int(local_part(value).nbytes)
        case Mapping():
            return sum(bytes_of_state(part) for part in value.values())
        case list() | tuple():
            return sum(bytes_of_state(part) for part in value)
        case _:
            return 0
