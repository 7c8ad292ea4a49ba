"""The trials of a submission, and their runs up to the goal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

from torch.quasirandom import SobolEngine

from search_spaces import Assignment, Scalar, SearchSpace, portfolios, presets
from search_spaces.nearest import did_you_mean
from search_spaces.parameters import is_active
from shampoo.step.failures import RefreshFailed
from trainers.config import Diverged, InvalidConfig, OptimizerConfig, ScheduleConfig, TrialConfig
from trainers.external_tuning.goals import Goal
from trainers.loop import train
from trainers.ranks.context import RankContext

NUM_POINTS = 5
NUM_STUDIES = 5
"""Both are AlgoPerf's for external tuning (arXiv:2306.07179): five studies of five points."""


@dataclass(frozen=True, slots=True)
class Submission:
    """An algorithm with how it is tuned."""

    name: str
    points: Sequence[Assignment] | SearchSpace
    """The points of every study, or a space from which each study draws others."""

    def of_study(self, study: int) -> Sequence[Assignment]:
        """The points that a study tries."""
        if isinstance(self.points, SearchSpace):
            return [self.points.assign(values) for values in drawn(self.points, NUM_POINTS, seed=study)]
        return self.points


def submissions() -> dict[str, Submission]:
    """The submissions by name: every preset as a space, and AlgoPerf's lists of points."""
    spaces = {name: Submission(name, space) for name, space in presets().items()}
    return spaces | {name: Submission(name, points) for name, points in portfolios().items()}


def submission(name: str) -> Submission:
    """The submission of a name.

    Raises:
        InvalidConfig: there is none; the message lists those there are.
    """
    known = submissions()
    if name not in known:
        raise InvalidConfig(
            "submission",
            f"unknown submission {name!r} (known: {', '.join(known)}){did_you_mean(name, list(known))}",
        )
    return known[name]


def drawn(space: SearchSpace, number: int, *, seed: int) -> list[dict[str, Scalar]]:
    """Values of so many points of a space, by a scrambled Sobol sequence: even on each parameter's scale."""
    positions = SobolEngine(len(space.parameters), scramble=True, seed=seed).draw(number).tolist()
    found: list[dict[str, Scalar]] = []
    for row in positions:
        values: dict[str, Scalar] = {}
        for parameter, position in zip(space.parameters, row, strict=True):
            if is_active(parameter, values):
                values[parameter.name] = parameter.from_unit(position)
        found.append(values)
    return found


class Key(NamedTuple):
    """The key of a trial: what tells it from others."""

    submission: str
    workload: str
    study: int
    trial: int


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one trial; JSON-able."""

    submission: str
    workload: str
    study: int
    trial: int
    steps_to_goal: int | None
    """None: it did not reach the goal within the budget, or diverged."""
    seconds_to_goal: float | None
    """Time of training until the goal was reached, without evaluation; None: it was missed."""

    @property
    def key(self) -> Key:
        return Key(self.submission, self.workload, self.study, self.trial)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Raises: TypeError: a field is missing or unknown."""
        return cls(**data)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def trials(entered: Submission, goal: Goal, study: int) -> dict[Key, TrialConfig]:
    """The configs of a study, each with a seed of its own, which differs from those of all other studies."""
    points = entered.of_study(study)
    # Neither presets nor lists have these.
    assert not any(point.averaging or point.compression for point in points)
    return {
        Key(entered.name, goal.workload, study, number): TrialConfig(
            workload=goal.workload,
            workload_options={**goal.options, **point.workload_options},
            optimizer=OptimizerConfig(point.optimizer, point.optimizer_arguments),
            schedule=ScheduleConfig(**point.schedule),
            num_steps=goal.num_steps,
            evaluate_every=goal.evaluate_every,
            batch_size=goal.batch_size,
            seed=NUM_POINTS * study + number,
            target=goal.target,
            **point.training,
        )
        for number, point in enumerate(points)
    }


def run(key: Key, config: TrialConfig, context: RankContext) -> Run:
    """Trains a trial up to its goal; on all ranks alike."""
    steps, seconds = to_goal(config, context)
    return Run(*key, steps, seconds)


def to_goal(config: TrialConfig, context: RankContext) -> tuple[int, float] | tuple[None, None]:
    """Steps and training seconds up to the measurement at which the trial reaches its target."""
    try:
        for measurement in train(config, context):
            if measurement.metrics["target_reached"]:
                return measurement.step, measurement.seconds
    except (Diverged, RefreshFailed):
        pass
    return None, None
