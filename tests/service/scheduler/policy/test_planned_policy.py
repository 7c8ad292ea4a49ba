"""The policy of a job, made from its plan."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain import Phase, TrialState
from service.scheduler.policy.planned_policy import make_policy
from service.scheduler.policy.protocol import Start, TrialHistory
from service.specification.job import Budget, ConfirmationChoice, JobSpecification, WorkloadChoice
from service.specification.planning import plan_job
from service.specification.search.pauses import PAUSE_SHARES
from tests.support.readmes import ROOT
from trainers.workloads.registry import BUILT_IN


def first_asked(**parts: Any) -> tuple[Start, int]:
    """The first trial of a job's search, and the steps of a whole one."""
    plan = plan_job(JobSpecification.model_validate(parts))
    asked = make_policy(plan).ask()
    assert isinstance(asked, Start)
    assert asked.side == Phase.SEARCH
    return asked, plan.num_steps


@pytest.mark.parametrize("training", [{}, {"evaluate_every_epochs": 2.0}, {"evaluate_every_seconds": 60.0}])
@pytest.mark.parametrize("name", BUILT_IN)
def test_a_trial_first_pauses_where_the_readme_says_however_seldom_it_is_measured(
    name: str, training: dict[str, Any]
) -> None:
    options = {option: "/data" for option, described in BUILT_IN[name].options.items() if described.required}
    asked, num_steps = first_asked(workload={"name": name, "options": options}, training=training)
    assert asked.until == round(PAUSE_SHARES[0] * num_steps)
    assert f"to {PAUSE_SHARES[0]:.0%} of its own schedule" in (ROOT / "service" / "README.md").read_text()


def test_a_trial_first_pauses_at_the_step_that_the_job_gives() -> None:
    asked, _ = first_asked(workload={"name": "digits-mlp"}, pruner={"min_steps": 37})
    assert asked.until == 37


def test_without_a_pruner_no_trial_pauses() -> None:
    asked, _ = first_asked(workload={"name": "digits-mlp"}, pruner={"name": "none"})
    assert asked.until is None


def test_a_family_sends_the_best_of_another_member_into_the_confirmation() -> None:
    plan = plan_job(
        JobSpecification(
            workload=WorkloadChoice(name="digits-mlp"),
            search_space="family",
            baselines=[],
            budget=Budget(num_trials=6),
            confirmation=ConfirmationChoice(top_k=2, num_seeds=4),
        )
    )
    space = plan.spaces[Phase.SEARCH]
    found = [("shampoo", 1.0), ("shampoo", 1.1), ("soap", 1.2), ("kl", 9.0), ("kl", 9.1), ("spectral", 9.2)]
    policy = make_policy(plan)
    policy.restore(
        [
            TrialHistory(
                number,
                Phase.SEARCH,
                space.defaults({"preconditioner": member, "lr": 1e-3 * (1 + number)}),
                TrialState.COMPLETED,
                values=(value,),
                curve=((plan.num_steps, value),),
            )
            for number, (member, value) in enumerate(found)
        ]
    )
    asked = [policy.ask() for _ in range(2)]
    assert [one.repeats.number for one in asked if isinstance(one, Start) and one.repeats is not None] == [0, 2]
