"""The limits of this process's control groups on Linux: those of a container, of a batch system's job, of a service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ControlGroups:
    """The groups that this process is in, of either version of them."""

    root: Path = Path("/sys/fs/cgroup")
    own: Path = Path("/proc/self/cgroup")
    """Says which they are: a line `4:memory:/a/b` for a controller of version 1, `0::/a/b` for those of version 2."""

    def cpu_quota(self) -> float | None:
        """CPUs that the processes of a group may use at once, in the strictest of them; None: as many as there are."""
        quotas = []
        for group in self._groups("cpu"):
            of_both = _words(group / "cpu.max")  # version 2 has them in one file
            if not of_both:
                of_both = _words(group / "cpu.cfs_quota_us") + _words(group / "cpu.cfs_period_us")
            if len(of_both) == 2 and all(word.isdigit() for word in of_both):  # else `max`, or -1
                quotas.append(int(of_both[0]) / int(of_both[1]))
        return min(quotas, default=None)

    def memory_limit(self) -> int | None:
        """Bytes that the processes of a group may take, in the strictest of them; None, or more than there are: all."""
        limits = [
            int(word)
            for group in self._groups("memory")
            for name in ("memory.max", "memory.limit_in_bytes")
            for word in _words(group / name)
            if word.isdigit()
        ]
        return min(limits, default=None)

    def _groups(self, controller: str) -> Iterator[Path]:
        """This process's groups from the innermost to the root, which in a container may be the only one to be seen."""
        for line in _lines(self.own):
            _, controllers, path = line.split(":", maxsplit=2)
            if not controllers:
                top = self.root
            elif controller in controllers.split(","):
                top = self.root / controller
            else:
                continue
            group = top / path.lstrip("/")
            while group != top:
                yield group
                group = group.parent
            yield top


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def _words(file: Path) -> list[str]:
    return [word for line in _lines(file) for word in line.split()]
