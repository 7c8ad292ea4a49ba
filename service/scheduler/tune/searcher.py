"""The job's policy as a Ray Tune searcher: Tune asks it what to try next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher

from service.scheduler.policy.protocol import Policy
from service.scheduler.tune.messages import TrialOrder, TuneAdapter
from service.scheduler.tune.orders import Orders
from service.scheduler.tune.sharing import Sharing


class PolicySearcher(TuneAdapter, Searcher):
    """Hands Tune the trials that the policy asks for, as trial orders.

    The policy learns about their results from the pruner and the recorder, which know the trial's number; Tune gives a
    searcher only its own trial ids.
    """

    def __init__(
        self,
        policy: Policy,
        orders: Orders,
        *,
        sharing: Sharing | None = None,
        recall: Callable[[int], bool] = lambda _number: False,
    ) -> None:
        """Prepares the searcher.

        Args:
            recall: whether a trial that waits for a rank group was ended meanwhile; asked at every turn.
            sharing: says when a trial may start; None: whenever the policy has one, because the cluster is this job's.
        """
        super().__init__()
        self._policy = policy
        self._orders = orders
        self._sharing = sharing
        self._recall = recall
        self._ready: TrialOrder | None = None
        """Waits for a rank group of the shared cluster."""

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """The next trial; None: there is none at the moment, or no rank group for it.

        Raises:
            RunEnded: every trial of the job has ended, or the run has to end while none is running.
        """
        order = self._ready = self._ready or self._orders.next(self._policy)
        if self._sharing is not None:
            if order is None:
                self._sharing.wants_none()
            elif not self._sharing.may_take():
                if self._recall(order.number):
                    self._ready = None
                return None
        self._ready = None
        return None if order is None else order.to_tune()

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Does nothing: see the class."""

    def save(self, checkpoint_path: str) -> None:
        """Writes an empty file: Tune wants one, but a job is resumed from SQL."""
        Path(checkpoint_path).touch()

    def restore(self, checkpoint_path: str) -> None:
        """Does nothing: see `save`."""
