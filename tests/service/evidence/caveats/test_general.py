"""Caveats: what speaks against relying on a recommendation is told, and nothing where nothing does."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from search_spaces import SearchSpace, preset
from service.dashboard.recommendations.view import Listed
from service.domain import Direction, Objective, Phase, TrialState
from service.evidence.caveats import general
from service.evidence.finished_trial import FinishedTrial
from service.evidence.in_words.words import answer_of, currency_lines
from service.evidence.recommend import recommend
from service.evidence.transfers import HeadStart
from service.evidence.types import MIN_TRIED, Verdict
from service.store.models import RecommendationRow
from tests.support.service.caveats import sentences
from tests.support.service.confirmed import METRIC, finished_trial


def test_an_option_of_the_workload_that_one_side_alone_chose_is_told() -> None:
    rank = {"type": "categorical", "name": "workload.lora_rank", "choices": [2, 8]}
    search = SearchSpace.from_json({"optimizer": "shampoo", "parameters": [rank], "fixed": {"workload.depth": 3}})
    assert sentences(general.of_options({Phase.SEARCH: search, "adamw": preset("adamw")})) == [
        "The search chose workload.depth, workload.lora_rank, and AdamW had what the job gave it: the two may have "
        "trained different models."
    ]
    alike = SearchSpace.from_json({"optimizer": "adamw", "parameters": [rank], "fixed": {"workload.depth": 3}})
    assert general.of_options({Phase.SEARCH: search, "adamw": alike}) == []


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
        head_start=HeadStart(num_pinned=pinned, num_imported=imported, baselines_pinned=baselines),
    )
    assert recommendation is not None
    found = [
        caveat for caveat in sentences(recommendation.evidence.caveats) if caveat.startswith("The search was given")
    ]
    assert found == ([] if told is None else [told])


@pytest.mark.parametrize(
    ("num_stopped", "told"),
    [
        ({Phase.SEARCH: 0, Phase.BASELINE: 0}, []),
        ({Phase.SEARCH: 4, Phase.BASELINE: 4}, []),
        ({Phase.SEARCH: 4, Phase.BASELINE: 0}, []),
        (
            {Phase.SEARCH: 0, Phase.BASELINE: 4},
            ["The search had 12 trials and the baseline 8, which favours the search."],
        ),
    ],
)
def test_a_baseline_whose_trials_were_stopped_had_fewer(num_stopped: dict[Phase, int], told: list[str]) -> None:
    trials = [
        finished_trial(2 * i + offset, phase, [0.9] if is_stopped else [0.9, 0.5], state=state)
        for offset, phase in enumerate(num_stopped)
        for i in range(12)
        for is_stopped in (i >= 12 - num_stopped[phase],)
        for state in (TrialState.CANCELLED if is_stopped else TrialState.COMPLETED,)
    ]
    found = recommend(trials, objectives=[Objective(METRIC, Direction.MINIMIZE)])
    assert found is not None
    assert [caveat for caveat in sentences(found.evidence.caveats) if caveat.startswith("The search had")] == told


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict", "num_told"),
    [
        (20.0, 40.0, Verdict.BETTER, 0),
        (20.0, 56.0, Verdict.BETTER, 1),
        (56.0, 40.0, Verdict.WORSE, 1),
        (50.0, 56.0, Verdict.UNDECIDED, 2),
    ],
)
@pytest.mark.parametrize("num_seeds", [0, 6])
def test_a_target_that_was_missed_is_told_and_by_both_leaves_open_who_is_sooner(
    ours: float, theirs: float, verdict: Verdict, num_told: int, num_seeds: int
) -> None:
    def trial(number: int, phase: Phase, steps: float, **fields: Any) -> FinishedTrial:
        found = finished_trial(number, phase, [steps], **fields)
        curve = [(40, 4.0, {"steps_to_target": steps, "target_reached": float(steps <= 40)})]
        return dataclasses.replace(found, curve=curve)

    found = [trial(number, Phase.SEARCH, ours) for number in range(MIN_TRIED)]
    found += [trial(50 + number, Phase.BASELINE, theirs) for number in range(MIN_TRIED)]
    for seed in range(1, num_seeds + 1):
        found += [
            trial(number + seed, Phase.CONFIRMATION, steps + 0.01 * seed * steps / 40 - 0.1, confirms=source, seed=seed)
            for number, source, steps in ((100, 0, ours), (200, 50, theirs))
        ]
    recommendation = recommend(
        found, objectives=[Objective("steps_to_target", Direction.MINIMIZE)], seeds=range(1, num_seeds + 1)
    )
    assert recommendation is not None
    evidence, answer = recommendation.evidence, answer_of(recommendation.evidence)
    assert evidence.verdict is verdict
    assert answer is not None
    assert (answer.headline == "Undecided: Shampoo and AdamW both missed the target") == (verdict is Verdict.UNDECIDED)
    assert len(evidence.verdict_caveats) == num_told
    assert (evidence.improvement is None) == (num_told > 0)
    result = evidence.confirmation
    assert (result is not None and result.improvement is not None) == (num_seeds > 0 and num_told == 0)
    for compared in evidence.comparisons:
        has_interval = compared.improvement_low is not None or compared.improvement_high is not None
        assert has_interval == (num_seeds > 0 and num_told == 0)
    assert num_seeds == 0 or "by the search" not in " ".join(currency_lines(evidence))
    assert (evidence.reached_baseline is None, answer.speed is None) == (num_told > 0, num_told > 0)
    told = " ".join([answer.headline, answer.detail, *currency_lines(evidence)])
    assert ("%" in told) == (num_seeds > 0 and num_told == 0)
    if num_told:
        how_often = f"missed the target in {num_seeds or 1} of {num_seeds or 1} training"
        assert how_often in evidence.verdict_caveats[0].sentence


def test_seeds_that_contradict_each_other_are_not_told_as_a_target_that_both_missed() -> None:
    """The recommended config missed it with one seed, and was sooner with the others."""

    def trial(number: int, phase: Phase, steps: float, **fields: Any) -> FinishedTrial:
        found = finished_trial(number, phase, [steps], **fields)
        return dataclasses.replace(
            found, curve=[(40, 4.0, {"steps_to_target": steps, "target_reached": float(steps <= 40)})]
        )

    found = [trial(number, Phase.SEARCH, 20.0) for number in range(MIN_TRIED)]
    found += [trial(50 + number, Phase.BASELINE, 30.0) for number in range(MIN_TRIED)]
    for seed, (ours, theirs) in enumerate([(20.0, 30.0), (21.0, 31.0), (22.0, 31.0), (56.0, 30.0)], start=1):
        found.append(trial(100 + seed, Phase.CONFIRMATION, ours, confirms=0, seed=seed))
        found.append(trial(200 + seed, Phase.CONFIRMATION, theirs, confirms=50, seed=seed))
    recommendation = recommend(found, objectives=[Objective("steps_to_target", Direction.MINIMIZE)], seeds=range(1, 5))
    assert recommendation is not None
    evidence, answer = recommendation.evidence, answer_of(recommendation.evidence)
    assert evidence.confirmation is not None
    assert (evidence.improvement, evidence.confirmation.improvement) == (None, None)
    assert evidence.verdict is Verdict.UNDECIDED
    assert answer is not None
    assert answer.headline == "4 new seeds do not tell Shampoo from AdamW at equal steps"
    assert "by how much one is sooner is not known" in answer.detail
    listed = Listed(RecommendationRow(), evidence, is_superseded=False, job_name="")
    assert (listed.interval, listed.is_compared) == (None, True)
