"""The job's policy as a Ray Tune searcher: Tune asks it what to try next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher

from service.scheduler.ending import Ending, RunEnded
from service.scheduler.policy import Done, Policy, Resume, Start, Wait
from service.scheduler.trainable import TrialOrder
from service.scheduler.tune_adapter import TuneAdapter


class PolicySearcher(TuneAdapter, Searcher):
    """Hands Tune the trials that the policy asks for, as trial orders.

    What becomes of them the policy hears from the pruner and the recorder, which know the trial's number; Tune tells a
    searcher only its own trial ids.
    """

    def __init__(self, policy: Policy, *, order: Callable[[Start | Resume], TrialOrder]) -> None:
        """Prepares the searcher; `order` stores a new trial and turns it into what a trainable is asked to train."""
        super().__init__()
        self._policy = policy
        self._order = order

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """The next trial; None: there is none at the moment.

        Raises:
            RunEnded: every trial of the job has ended.
        """
        asked = self._policy.ask()
        match asked:
            case Start() | Resume():
                return self._order(asked).to_tune()
            case Wait():
                return None
            case Done():
                raise RunEnded(Ending.DONE)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Nothing: see the class."""

    def save(self, checkpoint_path: str) -> None:
        """Writes an empty file: Tune wants one, but a job is resumed from SQL."""
        Path(checkpoint_path).touch()

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: see `save`."""
