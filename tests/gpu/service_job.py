"""Small tuning jobs through the whole service: HTTP, worker, Ray, ranks on the device, SQLite, recommendation."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.api.schemas.jobs import JobRead
from service.cli.operating.demo import running_service
from service.client import ApiError, Client, WaitedTooLong
from service.domain import FailureReason, JobState, Phase, TrialState
from service.scheduler.cluster import process_tree
from service.settings import ENV_PREFIX, Settings
from service.specification.estimate import SpaceMemory
from tests.gpu.results import text
from tests.gpu.runner import Task

JOB_SECONDS = 150.0
PATIENT_JOB_SECONDS = 1500.0
"""Where the machine is no one's own."""
SERVICE_SECONDS = 60.0
"""For the start and the end of the service."""
NUM_PREDICTIONS = 3
"""Times that the memory is asked for: a service answers without it where its machine is too busy to tell in time."""
HOST_PROCESS_BYTES = 100e6
"""Trials measure the peak of what they hold on a GPU, of this model a few MB, or else of their whole process."""


@dataclass(frozen=True, slots=True)
class TuningJob:
    """A job that was submitted over HTTP, as it ended."""

    state: str
    why: str | None
    """The failure that the service gives, with the end of its log."""
    num_trials: int
    num_completed: int
    on_gpu: bool
    """True if its trials measured memory of a GPU."""
    predicted_bytes: int | None
    """Of weights, gradients and optimizer of the first trial, which has the defaults, as a dry run told before; None:
    it did not."""
    activation_bytes: int | None
    """Of its activations, likewise."""
    peak_bytes: float | None
    """That the trial measured: on a GPU of its tensors, or else of its whole process."""
    verdict: str | None
    recommended: str | None
    """The Python of the config."""
    gpus_per_worker: float = 0.0

    @property
    def problem(self) -> str | None:
        found = []
        if self.state != "succeeded" or self.num_completed == 0:
            found.append(
                f"the job {self.state}, {self.num_completed} of {self.num_trials} trials completed: {self.why}"
            )
        if not self.recommended:
            found.append("it has no recommendation")
        if self.on_gpu != (self.gpus_per_worker > 0):
            where = "on a GPU" if self.on_gpu else "without a GPU"
            found.append(f"its trials ran {where}, with gpus_per_worker = {self.gpus_per_worker:g}")
        if self.predicted_bytes is None or self.activation_bytes is None or self.peak_bytes is None:
            found.append(f"its memory was not told: {self._memory}")
        elif self.predicted_bytes > self.peak_bytes:
            found.append(f"a trial was to need more than it did: {self._memory}")
        return "; ".join(found) or None

    @property
    def summary(self) -> str:
        trials = f"{self.num_completed} of {self.num_trials} trials completed"
        return f"{self.state}, {trials}, {self.verdict}; {self._memory}"

    @property
    def _memory(self) -> str:
        if self.predicted_bytes is None or self.activation_bytes is None or not self.peak_bytes:
            return f"predicted {self.predicted_bytes} and {self.activation_bytes} B, peak {self.peak_bytes} B"
        predicted = self.predicted_bytes + self.activation_bytes
        ratio = text(predicted / self.peak_bytes)
        return f"predicted {text(predicted / 1e6)} MB of a peak of {text(self.peak_bytes / 1e6)} MB ({ratio})"


ENDS = (TrialState.COMPLETED.value, FailureReason.DIVERGED.value, FailureReason.INFEASIBLE.value)
"""Of the trials of a job that loses two: what needs more memory than there is is infeasible at its second try."""


@dataclass(frozen=True, slots=True)
class TrialEnds:
    """A job of which one trial goes well, one diverges and one runs out of memory."""

    state: str
    ends: tuple[str, ...]
    """The state of each trial, or the reason why it failed."""
    why: str
    """The words of the service for each that failed, with the end of the job's log."""

    @property
    def problem(self) -> str | None:
        if (self.state, self.ends) == (JobState.SUCCEEDED.value, ENDS):
            return None
        return f"the job {self.state}, with trials {self.ends} in place of {ENDS}: {self.why}"

    @property
    def summary(self) -> str:
        return f"{self.state}, with trials " + ", ".join(self.ends)


@dataclass(frozen=True, slots=True)
class ServiceEnd:
    """The end of the service that has run the jobs."""

    left_running: tuple[str, ...]
    """Its processes that outlived it."""

    @property
    def problem(self) -> str | None:
        return "left running: " + ", ".join(self.left_running) if self.left_running else None

    @property
    def summary(self) -> str:
        return f"{len(self.left_running)} processes are left running"


def tasks(device: str, *, is_tiny: bool) -> list[Task]:
    """Jobs whose trials have a GPU each, and that share one; without a GPU, one of CPU ranks.

    A single service runs them all: its imports take longer than a job.
    """
    shares = {"a GPU for a trial": 1.0, "half a GPU for a trial": 0.5} if device == "cuda" else {"CPU ranks": 0.0}
    seconds = PATIENT_JOB_SECONDS if is_tiny else JOB_SECONDS
    limit = seconds + SERVICE_SECONDS
    found = [
        Task("tuning job", name, tuning_job, (gpus, is_tiny, seconds), limit_seconds=limit)
        for name, gpus in shares.items()
    ]
    gpus = max(shares.values())
    name = "a trial that diverges and one out of memory"
    found.append(Task("tuning job", name, failing_trials, (gpus, seconds), limit_seconds=limit))
    found.append(Task("tuning job", "the end of the service", end_service, limit_seconds=limit))
    return found


@dataclass(frozen=True, slots=True)
class _Service:
    """A service that this process has started."""

    client: Client
    settings: Settings
    directory: tempfile.TemporaryDirectory[str]
    running: ExitStack


@functools.cache
def _service() -> _Service:
    """The service of all figures that this process takes, from the first on; a process in place of one that was ended
    starts another."""
    directory = tempfile.TemporaryDirectory(prefix="gpu-service-")
    settings = Settings(data_dir=Path(directory.name), database_url=None, checkpoint_directory=None, port=0)
    with ExitStack() as stack:
        client = stack.enter_context(Client(stack.enter_context(running_service(settings))))
        return _Service(client, settings, directory, stack.pop_all())


def end_service() -> ServiceEnd:
    """Stops the service, and looks for what it has left."""
    service = _service()
    service.running.close()
    left = process_tree.marked(f"{ENV_PREFIX}DATA_DIR", lambda value: value == service.directory.name)
    service.directory.cleanup()
    return ServiceEnd(tuple(sorted(process.name() for process in left)))


def tuning_job(gpus_per_worker: float, is_tiny: bool, seconds: float) -> TuningJob:
    """A job, submitted, waited for so long, and with it what it recommends."""
    service = _service()
    found = _job(service.client, service.settings, _specification(gpus_per_worker, is_tiny=is_tiny), seconds)
    return dataclasses.replace(found, gpus_per_worker=gpus_per_worker)


def failing_trials(gpus_per_worker: float, seconds: float) -> TrialEnds:
    """A job with a learning rate and a width that no machine can take: it loses those trials, and nothing else."""
    width, lr = "workload.width", "lr"
    specification = {
        "workload": {"name": "digits-mlp", "options": {"depth": 3}},
        "search_space": {
            "optimizer": "shampoo",
            "parameters": [
                {"type": "categorical", "name": lr, "choices": [0.003, 1e12]},
                {"type": "categorical", "name": width, "choices": [64, 1_000_000]},
            ],
        },
        "pinned": [{lr: 0.003, width: 64}, {lr: 1e12, width: 64}, {lr: 0.003, width: 1_000_000}],
        "baselines": [],
        "budget": {"num_trials": 3},
        "confirmation": None,
        "training": {"num_steps": 20},
        "resources": {"gpus_per_worker": gpus_per_worker},
    }
    client, settings = _service().client, _service().settings
    job = _waited_for(client, specification, seconds)
    trials = sorted(client.trials(job.id), key=lambda trial: trial.number)
    why = "; ".join(trial.detail for trial in trials if trial.detail)
    why = f"{job.failure or why}\n{_end_of_log(settings, job.id)}"
    ends = tuple((trial.state if trial.reason is None else trial.reason).value for trial in trials)
    return TrialEnds(job.state.value, ends, why)


def _specification(gpus_per_worker: float, *, is_tiny: bool) -> dict[str, Any]:
    return {
        "workload": {"name": "digits-mlp"},
        "search_space": "shampoo",
        "baseline": {"search_space": "adamw", "budget_share": 0.5},
        "budget": {"num_trials": 2 if is_tiny else 8},
        "training": {"num_steps": 20 if is_tiny else 200},
        "resources": {"gpus_per_worker": gpus_per_worker},
    }


def _predicted(client: Client, specification: dict[str, Any]) -> SpaceMemory | None:
    """The memory that the search's trials are predicted to take; None: it could not be told."""
    predicted = None
    for _ in range(NUM_PREDICTIONS):
        memory = client.estimate(specification).memory
        predicted = None if memory is None else memory.spaces.get(Phase.SEARCH)
        if predicted is not None and predicted.activation_bytes is not None:
            break
    return predicted


def _waited_for(client: Client, specification: dict[str, Any], seconds: float) -> JobRead:
    """A job of this specification at its end; one that takes longer is cancelled, so that the next can run."""
    submitted: JobRead = client.submit(specification, name="gpu")
    try:
        return client.wait(submitted.id, timeout_seconds=seconds)
    except WaitedTooLong as error:
        client.cancel(submitted.id)
        return error.job


def _job(client: Client, settings: Settings, specification: dict[str, Any], seconds: float) -> TuningJob:
    predicted = _predicted(client, specification)
    job = _waited_for(client, specification, seconds)
    trials = list(client.trials(job.id))
    completed = [trial for trial in trials if trial.state is TrialState.COMPLETED]
    peaks = {
        trial.number: peak
        for trial in completed
        for measurement in client.measurements(job.id, trial.number)
        if (peak := measurement.metrics.get("peak_memory_bytes")) is not None
    }
    verdict, recommended = None, None
    try:
        recommendation = client.recommendation(job.id)
        verdict, recommended = str(recommendation.evidence.verdict), recommendation.python
    except ApiError:
        pass  # there is none; the job says why
    why = job.failure or next((trial.detail for trial in trials if trial.detail), None)
    return TuningJob(
        state=str(job.state),
        why=f"{why}\n{_end_of_log(settings, job.id)}",
        num_trials=len(trials),
        num_completed=len(completed),
        on_gpu=bool(peaks) and max(peaks.values()) < HOST_PROCESS_BYTES,
        predicted_bytes=None if predicted is None else predicted.default_bytes,
        activation_bytes=None if predicted is None else predicted.activation_bytes,
        peak_bytes=peaks.get(0),
        verdict=verdict,
        recommended=recommended,
    )


def _end_of_log(settings: Settings, job: str) -> str:
    log = settings.data_dir / "logs" / f"{job}.log"
    return log.read_text(errors="replace")[-3000:] if log.exists() else "it has no log"
