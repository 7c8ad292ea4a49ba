"""A trial as an offline run of Weights & Biases: files that `wandb sync` uploads later."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

# Read at the import. Nothing is sent from here: whoever wants it to be calls `wandb sync`.
os.environ.setdefault("WANDB_MODE", "offline")

import wandb

from trainers.trackers.protocol import RunEnd, SafeNames, TrackedTrial


class WandbRun:
    """A run of the project that is called as the job is."""

    def __init__(self, directory: Path, trial: TrackedTrial) -> None:
        self._names = SafeNames()
        self._run = wandb.init(
            mode="offline",
            project=trial.job,
            id=f"{trial.job}-{trial.number}",
            name=trial.run_name,
            notes=trial.job_name,
            dir=str(directory),
            config=dict(trial.parameters),
            tags=[f"{name}:{value}"[:64] for name, value in trial.tags.items()],
            reinit="create_new",
            settings=wandb.Settings(
                silent=True, disable_git=True, disable_code=True, x_disable_stats=True, console="off"
            ),
        )

    def log(self, step: int, metrics: Mapping[str, float], *, unix_seconds: float) -> None:
        self._run.log(
            {"_timestamp": unix_seconds, **{self._names.of(name): value for name, value in metrics.items()}}, step=step
        )

    def end(self, how: RunEnd, *, unix_seconds: float) -> None:
        self._run.summary["end"] = how
        self._run.finish(exit_code=1 if how == "failed" else 0)
