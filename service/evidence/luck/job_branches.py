"""The choices of the parameter that a space branches by: which won, as which member of a family, and how sure that
is."""

from __future__ import annotations

import math
from collections.abc import Sequence

from search_spaces import Scalar, SearchSpace
from service.domain import Direction, Phase, TrialState
from service.evidence.branches import BranchBest, Branches
from service.evidence.finished_trial import FinishedTrial
from service.evidence.luck.best_probability import branch_probabilities
from service.evidence.luck.searched_side import SearchedSide
from service.evidence.luck.true_means import NoNoise


def branches_of(
    trials: Sequence[FinishedTrial],
    best: int,
    space: SearchSpace,
    side: SearchedSide | None,
    direction: Direction,
) -> Branches | None:
    """The choices that the search tried, by the first parameter of its space whose choices open others.

    Args:
        trials: all of the job's.
        best: the number of the trial whose config is recommended.
        space: that of the search.
        side: the search as the models of luck see it; None: nothing is known of the luck of seeds.

    Returns:
        None if the space has no such parameter.
    """
    parameter = space.member
    if parameter is None:
        return None
    own = [trial for trial in trials if trial.phase is Phase.SEARCH]
    probabilities: dict[Scalar, float] = {}
    if side is not None:
        try:
            choices = {trial.number: trial.parameters[parameter.name] for trial in own}
            probabilities = branch_probabilities(side, direction, choices)
        except NoNoise:
            pass
    return Branches(
        parameter=parameter.name,
        winner=next(trial.parameters[parameter.name] for trial in own if trial.number == best),
        choices=[
            _best(
                choice,
                [trial for trial in own if trial.parameters[parameter.name] == choice],
                probabilities.get(choice),
                direction,
            )
            for choice in parameter.choices
        ],
    )


def _best(
    choice: Scalar, trials: Sequence[FinishedTrial], probability: float | None, direction: Direction
) -> BranchBest:
    sign = 1.0 if direction is Direction.MINIMIZE else -1.0
    completed = [
        (sign * trial.value, trial.number)
        for trial in trials
        if trial.state is TrialState.COMPLETED and trial.value is not None and math.isfinite(trial.value)
    ]
    value, number = min(completed, default=(None, None))
    return BranchBest(
        choice=choice,
        num_tried=sum(trial.state in (TrialState.COMPLETED, TrialState.PRUNED) for trial in trials),
        number=number,
        value=None if value is None else sign * value,
        probability_best=probability,
    )
