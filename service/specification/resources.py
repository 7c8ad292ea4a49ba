"""The resources that a job's trials take of the cluster."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field

from service.described_model import MaxEntries, StrictModel
from service.errors import InvalidInput
from service.faults import Faults
from trainers.config import MAX_COUNT

MIN_SHARE = 0.01
"""Least share of a CPU or GPU."""
MAX_CUSTOM_RESOURCES = 16
"""Names of Ray's custom resources, by judgement: a machine is told by a few."""
_OF_RAY = ("cpu", "gpu", "memory", "object_store_memory", "bundle")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]{0,63}")


class Resources(StrictModel):
    workers_per_trial: int = Field(default=1, ge=1, le=4096)
    """Ranks of a trial's process group."""
    cpus_per_worker: float = Field(default=1.0, ge=MIN_SHARE, le=MAX_COUNT)
    """CPUs that each rank takes from the cluster; it computes with as many threads, at least one."""
    gpus_per_worker: float = Field(default=0.0, ge=0, le=1)
    """0: CPU ranks on gloo; 1: one GPU a rank, on NCCL. A fraction, such as 0.5, lets several trials of one rank share
    a GPU; each of them can use all of its memory."""
    memory_per_worker: int | None = Field(default=None, ge=1, le=2**53, examples=[8_000_000_000])
    """Bytes of a machine's memory that are set aside for a rank; null: memory is not counted. A trial of CPU ranks that
    is predicted to need more is not launched: it fails as `infeasible`."""
    beyond_memory: bool = False
    """True: trials of CPU ranks without `memory_per_worker` that are predicted to need twice the memory of the machine,
    or more, are launched all the same. Else they fail as `infeasible`. Only where trials train on the service's
    machine."""
    custom_resources: Annotated[dict[str, float], MaxEntries(MAX_CUSTOM_RESOURCES)] = Field(
        default_factory=dict, examples=[{"fast_disk": 1}]
    )
    """Amounts per rank of resources that machines of the cluster declare by name (`ray start --resources`)."""
    parallel_trials: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Trials at once; null: as many as the cluster holds."""

    @property
    def device(self) -> Literal["cpu", "cuda"]:
        """The kind of device that trials train on."""
        return "cuda" if self.gpus_per_worker else "cpu"

    @property
    def threads_per_worker(self) -> int:
        """CPU threads that a rank computes with."""
        return max(1, int(self.cpus_per_worker))

    def check(self) -> None:
        """Checks what fields say together.

        Raises:
            InvalidInput: names the fields that are impossible.
        """
        faults = Faults()
        with faults.noted():
            self._check_gpus()
        if self.beyond_memory and (self.gpus_per_worker or self.memory_per_worker is not None):
            other = "gpus_per_worker" if self.gpus_per_worker else "memory_per_worker"
            faults.note(InvalidInput("resources.beyond_memory", f"has no effect beside {other}"))
        for name, amount in self.custom_resources.items():
            with faults.noted():
                _check_custom(name, amount)
        faults.tell()

    def _check_gpus(self) -> None:
        gpus, workers = self.gpus_per_worker, self.workers_per_trial
        if 0 < gpus < MIN_SHARE:
            raise InvalidInput("resources.gpus_per_worker", f"must be 0 or at least {MIN_SHARE:g}, got {gpus:g}")
        if gpus % 1 and workers > 1:
            raise InvalidInput(
                "resources.gpus_per_worker",
                f"a part of a GPU needs workers_per_trial = 1, because NCCL wants a GPU for each rank; got {gpus:g} "
                f"with workers_per_trial = {workers}",
            )


def _check_custom(name: str, amount: float) -> None:
    field = f"resources.custom_resources.{name}"
    if name.lower() in _OF_RAY or not _NAME.fullmatch(name):
        raise InvalidInput(
            field,
            f"{name[:80]!r} is no name of a resource: up to 64 letters, digits, '_', '-' and '.', a letter first, and "
            f"none of {', '.join(_OF_RAY)}",
        )
    if not MIN_SHARE <= amount <= MAX_COUNT:
        raise InvalidInput(field, f"must be in [{MIN_SHARE:g}, {MAX_COUNT}], got {amount:g}")
    if amount > 1 and amount % 1:
        raise InvalidInput(field, f"must be whole above 1, got {amount:g}")
