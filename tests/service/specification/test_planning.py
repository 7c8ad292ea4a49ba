"""The plan of a job: how its trials are shared out, what is filled in, and what does not go together."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from search_spaces import preset
from service.domain import Phase
from service.errors import InvalidInput
from service.specification.job import JobSpecification
from service.specification.phases import num_searched
from service.specification.planning import plan_job
from tests.support.service.scenarios import (
    specification,
)


@pytest.mark.parametrize(
    "fields",
    [
        {"budget": {"num_trials": -1}},
        {"budget": {"num_trials": "8"}},
        {"budget": {"num_trials": True}},
        {"budget": {"num_trials": 10_001}},
        {"budget": {"wall_clock_seconds": 0}},
        {"budget": {"wall_clock_seconds": float("nan")}},
        {"baseline": {"budget_share": 1.0}},
        {"sampler": {"name": "magic"}},
        {"colour": "red"},
    ],
)
def test_fields_out_of_range_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        specification(**fields)


def test_pinned_trials_are_completed_with_defaults() -> None:
    plan = plan_job(specification(pinned=["algoperf", {"lr": 2e-3}], baseline={"pinned": [{"lr": 1e-2}]}))
    search, baseline = plan.pinned[Phase.SEARCH], plan.pinned["adamw"]
    assert [point["lr"] for point in search] == [1.308e-3, 1.749e-3, 1.2e-3, 1.438e-3, 2e-3]
    assert search[-1] == {**plan.spaces[Phase.SEARCH].defaults(), "lr": 2e-3}
    assert baseline == ({**plan.spaces["adamw"].defaults(), "lr": 1e-2},)


def test_presets_begin_with_a_learning_rate_for_the_length_and_a_space_of_ones_own_with_its_own() -> None:
    training = {"num_steps": 100}
    plan = plan_job(specification(training=training))
    assert [space.defaults()["lr"] for space in plan.spaces.values()] == [0.013, 0.013]
    longer = plan_job(specification(training={"num_steps": 10_000}))
    assert [space.defaults()["lr"] for space in longer.spaces.values()] == [0.0015, 0.0015]
    own = plan_job(specification(training=training, search_space=preset("shampoo").to_json()))
    assert [space.defaults()["lr"] for space in own.spaces.values()] == [0.0015, 0.013]
    theirs = plan_job(
        specification(
            training=training, workload={"name": "external"}, external={"metrics": {"validation_loss": "minimize"}}
        )
    )
    assert [space.defaults()["lr"] for space in theirs.spaces.values()] == [0.0015, 0.0015]


@pytest.mark.parametrize(
    ("fields", "sampler", "pruner"),
    [
        ({}, "auto", "auto"),
        ({"pruner": {"name": "none"}}, "auto", "none"),
        ({"pruner": {"name": "asha"}}, "tpe", "asha"),
        ({"sampler": {"name": "gp"}}, "gp", "asha"),
        ({"sampler": {"name": "grid"}, "pruner": {"name": "median"}}, "grid", "median"),
        ({"budget": {"num_trials": 8}, "pruner": {"name": "pbt"}}, "tpe", "pbt"),
    ],
)
def test_a_sampler_and_a_pruner_are_chosen_to_go_together(fields: dict[str, Any], sampler: str, pruner: str) -> None:
    plan = plan_job(specification(**fields))
    assert (plan.sampler, plan.pruner) == (sampler, pruner)


@pytest.mark.parametrize(
    ("num_trials", "share", "baseline"), [(20, 0.25, 5), (2, 0.25, 1), (3, 0.4, 1), (3, 0.9, 2), (100, 0.001, 1)]
)
def test_the_budget_is_split_so_that_both_phases_get_trials(num_trials: int, share: float, baseline: int) -> None:
    plan = plan_job(specification(budget={"num_trials": num_trials}, baseline={"budget_share": share}))
    assert plan.allotments == {Phase.SEARCH: num_trials - baseline, Phase.BASELINE: baseline}


@pytest.mark.parametrize(
    ("num_trials", "shares", "allotted"),
    [
        (3, (None, None), (1, 1, 1)),
        (15, (None,), (7, 7)),
        (15, (0.5,), (7, 7)),
        (20, (None, None), (6, 6, 6)),
        (30, (None, None, None), (7, 7, 7, 7)),
        (40, (0.25, None), (15, 10, 15)),
        (40, (0.5, 0.25), (10, 20, 10)),
    ],
)
def test_search_and_baselines_share_the_budget_evenly_but_for_the_shares_given(
    num_trials: int, shares: tuple[float | None, ...], allotted: tuple[int, ...]
) -> None:
    baselines = _baselines(*zip(("adamw", "muon", "sgd"), shares, strict=False))
    plan = plan_job(specification(budget={"num_trials": num_trials}, baselines=baselines))
    assert tuple(plan.side_allotments.values()) == allotted
    assert list(plan.side_allotments) == ["search", *(baseline["search_space"] for baseline in baselines)]
    more = plan_job(specification(budget={"num_trials": num_trials + 1}, baselines=baselines)).side_allotments
    assert all(more[side] >= num for side, num in plan.side_allotments.items())


@pytest.mark.parametrize(
    ("baselines", "field", "said"),
    [
        ([("adamw", None), ("adamw", None)], "baselines[1].search_space", "'adamw', as baselines[0].search_space"),
        ([("adamw", 0.5), ("muon", 0.5)], "baselines[1].budget_share", "must add up to less than 1, got 1"),
        ([("adamw", None), ("muon", None), ("sgd", None)], "budget.num_trials", "with 3 baselines needs at least 4"),
    ],
)
def test_baselines_that_do_not_go_together_are_refused(
    baselines: list[tuple[str, float | None]], field: str, said: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)) as refused:
        plan_job(specification(budget={"num_trials": 3}, baselines=_baselines(*baselines)))
    assert refused.value.field == field


def _baselines(*named: tuple[str, float | None]) -> list[dict[str, Any]]:
    return [{"search_space": name, "budget_share": share} for name, share in named]


def test_a_stored_job_of_the_time_of_one_baseline_is_read_with_its_own() -> None:
    stored = {
        "workload": {"name": "digits-mlp"},
        "budget": {"num_trials": 8, "extra_search_trials": 1, "extra_baseline_trials": 2},
        "baseline": {"search_space": "sgd", "budget_share": 0.25, "pinned": []},
    }
    read = JobSpecification.model_validate(stored)
    assert plan_job(read).side_allotments == {"search": 7, "sgd": 4}
    assert (num_searched(read), JobSpecification.model_validate(read.model_dump(mode="json"))) == (11, read)
    without = {**stored, "budget": {"num_trials": 8, "extra_baseline_trials": 0}, "baseline": None}
    assert JobSpecification.model_validate(without).baselines == []


def test_several_baselines_choose_one_of_them_even_with_a_config_each() -> None:
    baselines = _baselines(("adamw", None), ("muon", None))
    plan = plan_job(specification(baselines=baselines, confirmation={"top_k": 1, "num_seeds": 8}))
    assert plan.allotments[Phase.CONFIRMATION] == 3 * 2 + 2 * 6


@pytest.mark.parametrize(
    ("fields", "allotments"),
    [
        ({"budget": {"num_trials": 20}, "baseline": {}}, (10, 10, 16)),
        ({"budget": {"num_trials": 16}, "baseline": {}}, (8, 8, 16)),
        ({"budget": {"num_trials": 15}, "baseline": {}}, (7, 7)),
        ({"budget": {"num_trials": 8}, "baseline": None}, (8, 8)),
        ({"budget": {"num_trials": 20}, "baseline": {}, "confirmation": None}, (10, 10)),
        ({"budget": {"num_trials": 20}, "baseline": {}, "pruner": {"name": "pbt"}}, (10, 10)),
    ],
)
def test_a_job_confirms_unless_it_is_too_short_to_compare_or_told_not_to(
    fields: dict[str, Any], allotments: tuple[int, ...]
) -> None:
    assert tuple(plan_job(specification(**fields)).allotments.values()) == allotments


def test_the_seeds_of_the_confirmation_are_new() -> None:
    plan = plan_job(specification(training={"seed": 2**63 - 2}, confirmation={"num_seeds": 3}))
    assert plan.confirmation_seeds == [2**63 - 1, 0, 1]
    defaults = plan.spaces["adamw"].defaults()
    config = plan.trial_config("adamw", defaults, seed=1)
    assert config == replace(plan.trial_config("adamw", defaults), seed=1)
    assert plan_job(specification()).confirmation_seeds == []
