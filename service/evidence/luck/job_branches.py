"""The choices of the parameter that a space branches by, as the members of a family: which one the recommended config
is of, and how probably each would do best by itself."""

from __future__ import annotations

from collections.abc import Sequence

from search_spaces import Scalar, SearchSpace
from service.domain import Direction, Phase, TrialState
from service.evidence.branches import BranchBest, Branches
from service.evidence.finished_trial import FinishedTrial
from service.evidence.luck.best_choice import choice_probabilities
from service.evidence.luck.job_luck import tried_trials
from service.evidence.luck.searched_side import SearchedSide
from service.evidence.types import MIN_TRIED

DECIDED = 0.95
"""The probability from which a choice is said to suit best: the confidence of a verdict."""


def branches_of(
    trials: Sequence[FinishedTrial],
    best: int,
    space: SearchSpace,
    side: SearchedSide | None,
    direction: Direction,
    *,
    metric: str,
) -> Branches | None:
    """The choices that the search tried, by the first parameter of its space whose choices open others.

    Args:
        trials: all of the job's.
        best: the number of the trial whose config is recommended.
        space: the search's space.
        side: the search as the models of luck see it; None: nothing was trained again.
        metric: the objective.

    Returns:
        None if the space has no such parameter.
    """
    parameter = space.member
    if parameter is None:
        return None
    own = [trial for trial in trials if trial.phase is Phase.SEARCH]
    tried = tried_trials(own, space, metric) if side is None else side.trials
    chosen = {trial.number: trial.parameters[parameter.name] for trial in own}
    probabilities = choice_probabilities(tried, chosen, direction, all_choices=parameter.choices, side=side)
    winner = chosen[best]
    choices = [
        _best(
            choice,
            [trial for trial in own if chosen[trial.number] == choice],
            probabilities.get(choice),
            direction,
        )
        for choice in parameter.choices
    ]
    return Branches(
        parameter=parameter.name,
        winner=winner,
        choices=choices,
        is_decided=probabilities.get(winner, 0.0) >= DECIDED and sum(one.num_tried for one in choices) >= MIN_TRIED,
    )


def _best(
    choice: Scalar, trials: Sequence[FinishedTrial], probability: float | None, direction: Direction
) -> BranchBest:
    sign = 1.0 if direction is Direction.MINIMIZE else -1.0
    completed = [(sign * final, trial.number) for trial in trials if (final := trial.final_value) is not None]
    value, number = min(completed, default=(None, None))
    return BranchBest(
        choice=choice,
        num_tried=sum(trial.state in (TrialState.COMPLETED, TrialState.PRUNED) for trial in trials),
        number=number,
        value=None if value is None else sign * value,
        probability_best_alone=probability,
    )
