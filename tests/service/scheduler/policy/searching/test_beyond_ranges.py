"""Trials that users propose beyond the ranges of a space: every search lives with them."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from search_spaces import Scalar
from service.domain import Direction, Phase, SamplerName, TrialState
from service.scheduler.policy.confirmation import Confirmation
from service.scheduler.policy.job_policy import JobPolicy
from service.scheduler.policy.protocol import (
    Decision,
    Done,
    GiveUp,
    Resume,
    Start,
    TrialHistory,
)
from service.scheduler.policy.searching.auto import AutoSearch
from service.scheduler.policy.searching.auto_study import AutoStudySearch
from service.scheduler.policy.searching.phase_search import PhaseSearch, SampledSearch
from service.scheduler.policy.searching.population import PopulationSearch
from service.scheduler.policy.searching.pruners import NoPruner
from service.scheduler.policy.searching.samplers import make_sampler
from service.scheduler.policy.sides import SidePlan
from tests.support.service.searching.simulation import SEARCH_SPACE

NUM_TRIALS = 14
"""After ten the Gaussian process has a model, as the last of the samplers."""


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["auto", "pbt", *get_args(SamplerName)])
def test_a_search_lives_with_a_proposed_trial_beyond_its_ranges(sampler: str) -> None:
    beyond: dict[str, Scalar] = {"grafting": "adam", "lr": 0.0, "betas[0]": 0.1, "precondition_frequency": 1000}

    def search() -> PhaseSearch:
        if sampler == "auto":
            searched = AutoSearch(SEARCH_SPACE, direction=Direction.MINIMIZE, max_steps=10, seed=0)
            return AutoStudySearch(searched, SEARCH_SPACE, Direction.MINIMIZE)
        name: Any = "random" if sampler == "pbt" else sampler
        made = make_sampler(name, SEARCH_SPACE, directions=[Direction.MINIMIZE], num_trials=NUM_TRIALS, seed="0")
        if sampler == "pbt":
            return PopulationSearch(
                made, SEARCH_SPACE, direction=Direction.MINIMIZE, population=4, interval=5, max_steps=10, seed="0"
            )
        return SampledSearch(made, NoPruner())

    completed = TrialHistory(0, Phase.SEARCH, beyond, TrialState.COMPLETED, None, (0.5,), ((10, 0.5),), proposed=True)
    waiting = TrialHistory(1, Phase.SEARCH, beyond, TrialState.QUEUED, None, (), (), proposed=True)
    policy = JobPolicy(
        [SidePlan(Phase.SEARCH, SEARCH_SPACE, NUM_TRIALS, search)],
        confirmation=Confirmation(top_k=1, choosing=[7], comparing=[8], direction=Direction.MINIMIZE),
    )
    policy.restore([completed, waiting])
    asked = policy.ask()
    assert isinstance(asked, Resume)
    assert asked.parameters == beyond
    confirmed = None
    for _ in range(100):
        if isinstance(asked, GiveUp):
            policy.tell(asked.number, TrialState.PRUNED)
        elif isinstance(asked, Start | Resume):
            assert SEARCH_SPACE.assign(asked.parameters)
            if isinstance(asked, Start) and asked.repeats is not None:
                confirmed = asked
            decision = Decision.CONTINUE
            for step in (5, 10):
                if decision is Decision.CONTINUE:
                    decision = policy.report(asked.number, step, 1.0 + asked.number)
            if decision is not Decision.PAUSE:
                policy.tell(asked.number, TrialState.COMPLETED, (1.0 + asked.number,))
        asked = policy.ask()
        if isinstance(asked, Done):
            break
    assert isinstance(asked, Done)
    assert confirmed is not None
    assert confirmed.parameters == beyond
