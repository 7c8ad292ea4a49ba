"""The trainable of Ray Tune: a `Trainable` that keeps one warm rank group and trains one trial after another in it."""

from __future__ import annotations

from typing import Any

import ray.util
from ray import tune

from service.domain import FailureReason
from service.scheduler.cluster.group_size import GroupSize
from service.scheduler.ranks.rank import RankFailure
from service.scheduler.ranks.rank_group import RankGroup
from service.scheduler.tune.messages import TrialOrder, TrialReport
from trainers.config import Measurement

TRIALS_PER_GROUP = 200
"""A group is replaced after this many trials, so that leaks in a user's code or a driver stay bounded."""


class WarmTrainable(tune.Trainable):
    """Trains the trials that Tune hands it, keeping its rank group between them.

    A group outlives its trial unless a rank died or failed alone: then the next trial gets a new group.
    """

    def setup(self, config: dict[str, Any]) -> None:
        self._group: RankGroup | None = None
        self._is_identified = self._is_placed = False
        self._begin(TrialOrder.from_tune(config))

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._begin(TrialOrder.from_tune(new_config))
        return True

    def step(self) -> dict[str, Any]:
        assert self._group is not None
        outcome = self._group.advance(timeout_seconds=self._report_timeout_seconds)
        places = () if self._is_placed else self._group.places()
        self._is_placed = True
        identity = None
        if isinstance(outcome, Measurement) and not self._is_identified:
            identity = self._group.identity()
            self._is_identified = identity is not None
        match outcome:
            case RankFailure():
                report = TrialReport(
                    "failed",
                    reason=outcome.reason,
                    detail=outcome.detail,
                    trace=outcome.trace,
                    refusal=outcome.refusal,
                    begins_anew=outcome.is_mismatch and not self._is_fork,
                    exit_status=outcome.exit_status,
                    places=places,
                )
            case Measurement() if outcome.step < self._num_steps:
                report = TrialReport("measured", outcome, identity=identity, places=places)
            case Measurement():
                report = TrialReport("completed", outcome, identity=identity, places=places)
            case None:
                detail = "training ended before its last step"
                report = TrialReport("failed", reason=FailureReason.ERROR, detail=detail, places=places)
        if not self._group.is_usable:
            self.cleanup()
        return report.to_tune()

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Does nothing: the ranks write their checkpoints themselves, to the directory in the order."""
        return {}

    def load_checkpoint(self, checkpoint: dict[str, Any] | None) -> None:
        """Does nothing: the ranks go on from the newest checkpoint they find."""

    def cleanup(self) -> None:
        if self._group is not None:
            self._group.close()
            self._group = None

    def _begin(self, order: TrialOrder) -> None:
        if self._group is not None:
            self._group.drop()
            if not self._group.is_usable or self._group.num_trials >= TRIALS_PER_GROUP:
                self.cleanup()
        if self._group is None:
            placement_group = ray.util.get_current_placement_group()
            assert placement_group is not None, "Tune runs a trainable in the placement group of its resources"
            self._group = RankGroup(order.size, placement_group)
        self._is_identified = self._is_placed = False
        self._is_fork = order.begins_at_step > 0
        self._num_steps = order.config.num_steps
        self._report_timeout_seconds = order.report_timeout_seconds
        self._group.start(
            order.config,
            order.checkpoint_directory,
            data_roots=order.data_roots,
            until_step=order.until_step,
            begins_at_step=order.begins_at_step,
            output=order.output,
            weights_directory=order.weights_directory,
        )


def trial_resources(size: GroupSize) -> tune.PlacementGroupFactory:
    """The resources of a trial: a bundle for each rank, and nothing for the trainable, which only waits."""
    return tune.PlacementGroupFactory([{}, *[size.rank_bundle] * size.world_size], strategy="PACK")
