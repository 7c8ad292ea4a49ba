"""A small tuning job through the whole service: HTTP, worker, Ray, ranks on the device, SQLite, recommendation."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.cli.operating.demo import running_service
from service.client import ApiError, Client, WaitedTooLong
from service.domain import TrialState
from service.scheduler.cluster import process_tree
from service.settings import ENV_PREFIX, Settings
from tests.gpu.results import TuningJob
from tests.gpu.runner import Task

JOB_SECONDS = 150.0
PATIENT_JOB_SECONDS = 1500.0
"""Where the machine is no one's own."""
SERVICE_SECONDS = 60.0
"""For the start and the end of the service."""
HOST_PROCESS_BYTES = 100e6
"""Trials measure the peak of what they hold on a GPU, of this model a few MB, or else of their whole process."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """A job at its end; the fields of `TuningJob`."""

    state: str
    why: str
    num_trials: int
    num_completed: int
    on_gpu: bool
    verdict: str | None
    recommended: str | None


def tasks(device: str, *, is_tiny: bool) -> list[Task]:
    """Jobs whose trials have a GPU each, and that share one; without a GPU, one of CPU ranks."""
    shares = {"a GPU for a trial": 1.0, "half a GPU for a trial": 0.5} if device == "cuda" else {"CPU ranks": 0.0}
    seconds = PATIENT_JOB_SECONDS if is_tiny else JOB_SECONDS
    limit = seconds + SERVICE_SECONDS
    return [
        Task("tuning job", name, tuning_job, (gpus, is_tiny, seconds), limit_seconds=limit, is_alone=True)
        for name, gpus in shares.items()
    ]


def tuning_job(gpus_per_worker: float, is_tiny: bool, seconds: float) -> TuningJob:
    """A job of a service of its own, submitted, waited for so long, and with it what it recommends."""
    with tempfile.TemporaryDirectory(prefix="gpu-service-") as directory:
        settings = Settings(data_dir=Path(directory), database_url=None, checkpoint_directory=None, port=0)
        with running_service(settings) as url, Client(url) as client:
            found = _job(client, settings, _specification(gpus_per_worker, is_tiny=is_tiny), seconds)

        left = process_tree.marked(f"{ENV_PREFIX}DATA_DIR", lambda value: value == directory)
    return TuningJob(
        state=found.state,
        why=found.why,
        num_trials=found.num_trials,
        num_completed=found.num_completed,
        gpus_per_worker=gpus_per_worker,
        on_gpu=found.on_gpu,
        verdict=found.verdict,
        recommended=found.recommended,
        left_running=tuple(sorted(process.name() for process in left)),
    )


def _specification(gpus_per_worker: float, *, is_tiny: bool) -> dict[str, Any]:
    return {
        "workload": {"name": "digits-mlp"},
        "search_space": "shampoo",
        "baseline": {"search_space": "adamw", "budget_share": 0.5},
        "budget": {"num_trials": 2 if is_tiny else 8},
        "training": {"num_steps": 20 if is_tiny else 200},
        "resources": {"gpus_per_worker": gpus_per_worker},
    }


def _job(client: Client, settings: Settings, specification: dict[str, Any], seconds: float) -> _Ended:
    job = client.submit(specification, name="gpu")
    try:
        job = client.wait(job.id, timeout_seconds=seconds)
    except WaitedTooLong as error:
        job = error.job
    trials = list(client.trials(job.id))
    completed = [trial for trial in trials if trial.state is TrialState.COMPLETED]
    peaks = [
        peak
        for trial in completed
        for measurement in client.measurements(job.id, trial.number)
        if (peak := measurement.metrics.get("peak_memory_bytes")) is not None
    ]
    verdict, recommended = None, None
    try:
        recommendation = client.recommendation(job.id)
        verdict, recommended = str(recommendation.evidence.verdict), recommendation.python
    except ApiError:
        pass  # there is none; the job says why
    log = settings.data_dir / "logs" / f"{job.id}.log"
    why = job.failure or next((trial.detail for trial in trials if trial.detail), None)
    return _Ended(
        state=str(job.state),
        why=f"{why}\n{log.read_text(errors='replace')[-3000:] if log.exists() else 'it has no log'}",
        num_trials=len(trials),
        num_completed=len(completed),
        on_gpu=bool(peaks) and max(peaks) < HOST_PROCESS_BYTES,
        verdict=verdict,
        recommended=recommended,
    )
