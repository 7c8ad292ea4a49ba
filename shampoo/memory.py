"""Refusing a configuration whose state does not fit, by name and number, before any of it is allocated.

Without it the CPU provides pages until the system kills a process, and a GPU's error only has the size of the last
request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from shampoo.cost import Cost
from shampoo.hyperparameters import Hyperparameters

_MEMINFO = Path("/proc/meminfo")
_CONTROL_GROUP = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")


def require_memory(costs: Sequence[tuple[Tensor, Cost]], h: Hyperparameters, *, working_bytes: int) -> None:
    """Checks that the state of parameters fits into the free memory of their devices, if that is known.

    Args:
        costs: parameters, and the cost of each on this rank.
        working_bytes: bytes that a step needs in addition to the state and its scratch memory.

    Raises:
        MemoryError: it does not; the message says what takes the most memory.
    """
    for device in {param.device for param, _ in costs}:
        free = free_bytes(device)
        of_each = [(param, cost) for param, cost in costs if param.device == device]
        if free is None:
            continue
        needed = sum(cost.state_bytes for _, cost in of_each) + max(cost.scratch_bytes for _, cost in of_each)
        needed += working_bytes
        if needed > free:
            param, cost = max(of_each, key=lambda pair: pair[1].state_bytes)
            raise MemoryError(
                f"preconditioner={h.preconditioner!r} needs {_gib(needed)} for its state of {len(of_each)} parameters, "
                f"and {device} has {_gib(free)} left; most of it, {_gib(cost.state_bytes)}, is for a parameter "
                f"{tuple(param.shape)} (max_preconditioner_dim={h.max_preconditioner_dim}, one_sided={h.one_sided}, "
                f"state_dtype={h.state_dtype!r}; shampoo.cost.estimate tells what others would need)"
            )


def free_bytes(device: torch.device) -> int | None:
    """Bytes that can still be allocated on the device. Known for CUDA devices, and for the CPU on Linux (of the
    machine, or of the control group if that is less); None elsewhere."""
    if device.type == "cuda":
        reserved_unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + reserved_unused
    if device.type != "cpu":
        return None
    known = [number for number in (_machine_bytes(), _control_group_bytes()) if number is not None]
    return min(known, default=None)


def _machine_bytes() -> int | None:
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    values = dict(line.split(":", maxsplit=1) for line in lines if ":" in line)
    return int(values["MemAvailable"].split()[0]) << 10 if "MemAvailable" in values else None


def _control_group_bytes() -> int | None:
    """Bytes that are left below the limits of a container, or of the job of a batch system; page cache can be freed and
    does not count."""
    return min((left for group in _groups() if (left := _left_in(group)) is not None), default=None)


def _left_in(group: Path) -> int | None:
    for limit, used, cache in (
        ("memory.max", "memory.current", "file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"),  # of version 1
    ):
        try:
            left = int((group / limit).read_text()) - int((group / used).read_text())
            numbers = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):  # no such file, or the word `max`
            continue
        return left + int(numbers.get(cache, 0))
    return None


def _groups() -> Iterator[Path]:
    """This process's groups from the innermost to the root, which in a container may be the only one to be seen."""
    try:
        lines = _OWN_GROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:  # `4:memory:/a/b` of version 1, `0::/a/b` of version 2
        _, controllers, path = line.split(":", maxsplit=2)
        if controllers in ("", "memory"):
            top = _CONTROL_GROUP / controllers
            group = top / path.lstrip("/")
            while group != top:
                yield group
                group = group.parent
            yield top


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f} GiB"
