"""Caveats: what speaks against relying on a recommendation is told, and nothing where nothing does."""

from __future__ import annotations

import dataclasses

import pytest

from search_spaces import SearchSpace, preset
from service.domain import Direction, Objective, Phase
from service.evidence import caveats
from service.evidence.finished_trial import FinishedTrial
from service.evidence.recommend import recommend
from tests.support.service.confirmed import METRIC, finished_trial


def test_an_option_of_the_workload_that_one_side_alone_chose_is_told() -> None:
    rank = {"type": "categorical", "name": "workload.lora_rank", "choices": [2, 8]}
    search = SearchSpace.from_json({"optimizer": "shampoo", "parameters": [rank], "fixed": {"workload.depth": 3}})
    assert caveats.of_options({Phase.SEARCH: search, "adamw": preset("adamw")}) == [
        "The search chose workload.depth, workload.lora_rank, and AdamW had what the job gave it: the two may have "
        "trained different models."
    ]
    alike = SearchSpace.from_json({"optimizer": "adamw", "parameters": [rank], "fixed": {"workload.depth": 3}})
    assert caveats.of_options({Phase.SEARCH: search, "adamw": alike}) == []


@pytest.mark.parametrize(
    ("pinned", "imported", "baselines", "told"),
    [
        (3, 0, [0], "The search was given 3 pinned entries and the baseline none, which favours the search."),
        (1, 0, [2, 0], "The search was given 1 pinned entry and the baseline none, which favours the search."),
        (
            0,
            40,
            [2],
            "The search was given no pinned entries and 40 trials of other studies and the baseline 2, which favours "
            "the search.",
        ),
        (2, 0, [2], None),
        (3, 7, [], None),
    ],
)
def test_what_the_search_alone_was_given_is_told(
    pinned: int, imported: int, baselines: list[int], told: str | None
) -> None:
    trials = [finished_trial(0, Phase.SEARCH, [0.5]), finished_trial(1, Phase.BASELINE, [0.6])]
    recommendation = recommend(
        trials,
        objectives=[Objective(METRIC, Direction.MINIMIZE)],
        num_pinned=pinned,
        num_imported=imported,
        num_baseline_pinned=baselines,
    )
    assert recommendation is not None
    found = [caveat for caveat in recommendation.evidence.caveats if caveat.startswith("The search was given")]
    assert found == ([] if told is None else [told])


def test_a_target_that_was_missed_is_told_where_the_objective_is_a_time_to_it() -> None:
    def trial(number: int, phase: Phase, steps: float) -> FinishedTrial:
        found = finished_trial(number, phase, [steps])
        metrics = {"steps_to_target": steps, "target_reached": float(steps <= 40)}
        return dataclasses.replace(found, curve=[(40, 4.0, metrics)])

    def told(*, ours: float, theirs: float, metric: str = "steps_to_target") -> list[str]:
        trials = [trial(0, Phase.SEARCH, ours), trial(1, Phase.BASELINE, theirs)]
        recommendation = recommend(trials, objectives=[Objective(metric, Direction.MINIMIZE)])
        assert recommendation is not None
        return [caveat for caveat in recommendation.evidence.caveats if "missed the target" in caveat]

    assert told(ours=20.0, theirs=40.0) == []
    [missed] = told(ours=20.0, theirs=56.0)
    assert missed.startswith(
        "The config of trial 1 missed the target in 1 of 1 training: there steps_to_target says how "
    )
    assert len(told(ours=50.0, theirs=56.0)) == 2
    assert told(ours=20.0, theirs=56.0, metric="validation_loss") == []
