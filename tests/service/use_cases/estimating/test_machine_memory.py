"""Jobs that the machine is too small for, or not large enough for so many trials at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from service.domain import Phase
from service.errors import InvalidInput
from service.specification.estimate import Estimate, MemoryEstimate
from service.specification.estimate_lines import estimate_lines, warning_lines
from service.specification.planning import JobPlan, plan_job
from service.specification.resources import Resources
from service.use_cases.estimating.machine_memory import (
    machine_limit_bytes,
    memory_of_this_machine,
    usable_cpus,
)
from service.use_cases.estimating.memory_estimates import check_workload, predict_job
from tests.support.service.scenarios import specification
from tests.support.waiting import PATIENCE_SECONDS


def _plan(**fields: Any) -> JobPlan:
    return plan_job(specification(**fields))


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
@pytest.mark.parametrize("width", [1_000_000, pytest.param(10_000_000, id="with more blocks than can be counted")])
def test_a_job_for_which_the_machine_is_far_too_small_is_refused_unless_it_insists(width: int) -> None:
    huge: dict[str, Any] = {"workload": {"name": "digits-mlp", "options": {"width": width, "depth": 2}}}
    told = r"resources: no trial of the search .* on the only rank, .* `beyond_memory: true` launches them all the same"
    with pytest.raises(InvalidInput, match=told):
        check_workload(_plan(**huge), start_seconds=PATIENCE_SECONDS)
    check_workload(_plan(**huge), is_local=False, start_seconds=PATIENCE_SECONDS)
    insists = _plan(**huge, resources={"beyond_memory": True})
    check_workload(insists, start_seconds=PATIENCE_SECONDS)
    estimate = predict_job(_plan(**huge), start_seconds=PATIENCE_SECONDS).memory
    assert estimate.is_machine_limit
    assert estimate.spaces[Phase.SEARCH].fits_nowhere
    estimate = predict_job(insists, start_seconds=PATIENCE_SECONDS).memory
    assert (estimate.is_machine_limit, estimate.limit_bytes) == (False, None)


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_a_dry_run_says_that_the_workloads_code_fails_in_a_step() -> None:
    failing = _plan(workload={"name": "tests.support.trainers.broken_workloads:Raises"})
    estimate = predict_job(failing, start_seconds=PATIENCE_SECONDS).memory
    assert estimate.step_fails
    assert str(estimate.activations_problem).startswith("KeyError: ")
    told = estimate_lines(
        Estimate(num_trials={}, num_steps=1, max_steps=1, measured=None, max_device_hours=None, memory=estimate)
    )
    begins = "A STEP FAILS: with a few examples the workload's code raised KeyError: "
    assert any(line.startswith(begins) for line in told)


def test_a_machine_keeps_twice_its_memory_from_being_launched_divided_among_ranks() -> None:
    machine = memory_of_this_machine()
    assert machine_limit_bytes(Resources()) == 2 * machine
    assert machine_limit_bytes(Resources(workers_per_trial=4)) == machine // 2
    for named in ({"memory_per_worker": 1000}, {"gpus_per_worker": 1}, {"beyond_memory": True}):
        assert machine_limit_bytes(Resources.model_validate(named)) is None
    for other in ({"memory_per_worker": 1000}, {"gpus_per_worker": 1}):
        with pytest.raises(InvalidInput, match=r"resources.beyond_memory: has no effect beside"):
            Resources.model_validate({"beyond_memory": True, **other}).check()


def test_a_job_whose_trials_take_more_cpus_than_the_machine_has_is_taken_with_a_warning() -> None:
    cpus = usable_cpus()
    for resources in ({"workers_per_trial": cpus}, {"workers_per_trial": 2 * cpus, "cpus_per_worker": 0.5}):
        assert check_workload(_plan(workload={"name": "digits-mlp"}, resources=resources)) is None
    found = check_workload(_plan(workload={"name": "digits-mlp"}, resources={"workers_per_trial": 2 * cpus}))
    assert found is not None
    told = f"it takes {2 * cpus} CPUs ({2 * cpus} ranks of 1), and the machine has {cpus}"
    assert warning_lines(found) == [f"NO TRIAL CAN START: {told}."]


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("check", [check_workload, lambda *a, **k: predict_job(*a, data_are_here=True, **k).memory])
def test_a_rank_with_a_gpu_is_warned_of_where_torch_sees_none(check: Callable[..., MemoryEstimate]) -> None:
    plan = _plan(workload={"name": "digits-mlp"}, resources={"gpus_per_worker": 1})
    found = check(plan, start_seconds=PATIENCE_SECONDS)
    assert warning_lines(found) == ["NO TRIAL CAN START: it takes a GPU, and torch sees none on the machine."]


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
@pytest.mark.parametrize(
    ("resources", "is_limited"), [({}, True), ({"parallel_trials": 90}, False), ({"memory_per_worker": 2**33}, False)]
)
def test_a_dry_run_says_that_trials_do_not_fit_together(resources: dict[str, int], *, is_limited: bool) -> None:
    wide: dict[str, Any] = {"workload": {"name": "digits-mlp", "options": {"width": 4000, "depth": 2}}}
    plan = _plan(**wide, resources={"cpus_per_worker": 0.01, **resources}, baseline=None)
    estimate = predict_job(plan, start_seconds=PATIENCE_SECONDS).memory
    (space,) = estimate.spaces.values()
    machine = memory_of_this_machine()
    assert estimate.machine_bytes == machine
    told = estimate_lines(
        Estimate(num_trials={}, num_steps=1, max_steps=1, measured=None, max_device_hours=None, memory=estimate)
    )
    together = [line for line in told if line.startswith("TOO LARGE TOGETHER: ")]
    limited = [
        line for line in told if line.endswith("at once, not as many as its CPUs hold: its memory holds no more.")
    ]
    assert estimate.is_limited_by_memory == bool(limited) == is_limited
    if "memory_per_worker" in resources:
        assert estimate.parallel_trials is None
    elif is_limited:
        assert estimate.parallel_trials == max(1, machine // space.default_bytes) < 100 * usable_cpus()
    else:
        assert estimate.parallel_trials == 90
        assert bool(together) == (90 * (space.default_bytes + (space.activation_bytes or 0)) > machine)
