"""Values that workloads and optimizers refuse: each told by its place in the job."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from service.domain import Phase
from service.errors import InvalidInput
from service.faults import InvalidInputs
from service.specification.planning import JobPlan, plan_job
from service.use_cases.estimating import memory_estimates
from service.use_cases.estimating.memory_estimates import check_workload, predict_job
from tests.support.service.scenarios import specification
from tests.support.trainers import picky_model, small_data
from tests.support.waiting import PATIENCE_SECONDS


def plan(**fields: Any) -> JobPlan:
    return plan_job(specification(**fields))


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_each_value_that_a_workload_refuses_of_a_searched_option_is_told_by_its_place() -> None:
    def searched(*parameters: dict[str, Any], **fields: Any) -> JobPlan:
        return plan(search_space={"optimizer": "adamw", "parameters": list(parameters)}, baseline=None, **fields)

    depth = {"type": "categorical", "name": "workload.depth", "choices": [2, 0, 1, -1]}
    dropout = {"type": "float", "name": "workload.dropout", "low": 0.0, "high": 1.0}
    found = searched(depth, dropout)
    for check in (check_workload, partial(predict_job, data_are_here=True)):
        with pytest.raises(InvalidInputs) as caught:
            check(found, start_seconds=PATIENCE_SECONDS)
        assert [fault.field for fault in caught.value.found] == [
            "search_space.parameters[0].choices[1]",
            "search_space.parameters[0].choices[3]",
            "search_space.parameters[1].high",
        ]
        assert caught.value.message.startswith("workload.depth = 0: depth must be an integer >= 1, got 0")
    assert (
        predict_job(found, start_seconds=PATIENCE_SECONDS).memory.problem is None
    )  # there it may be another's workload

    wrong = {"workload.dropout": 2}
    width = {"type": "integer", "name": "workload.width", "low": 32, "high": 512, "default": 34}
    gpt = {"workload": {"name": "stdlib-gpt", "options": {}}}
    for given, place in (
        ({"workload": {"name": "digits-mlp", "options": {"dropout": 2}}}, "workload.options.dropout"),
        ({"search_space": {"optimizer": "adamw", "fixed": wrong}}, "search_space.fixed.workload.dropout"),
        ({"search_space": {"optimizer": "adamw", "parameters": [{**depth, "default": 0}]}}, "parameters[0].default"),
        ({"search_space": {"optimizer": "adamw", "parameters": [width]}, **gpt}, "search_space"),
        ({"search_space": {"optimizer": "adamw", "parameters": [{**width, "default": 64}]}, **gpt}, "parameters[0]"),
    ):
        with pytest.raises(InvalidInput, match=r"must be .*, got \d") as refused:
            check_workload(plan(baseline=None, **given), start_seconds=PATIENCE_SECONDS)
        assert refused.value.field.endswith(place)

    # `lora_alpha` has no effect without a rank, and goes with the other rank.
    rank = {"type": "categorical", "name": "workload.lora_rank", "choices": [2, None], "default": 2}
    alpha = {"type": "categorical", "name": "workload.lora_alpha", "choices": [8.0, None], "default": 8.0}
    workload = {"name": "huggingface", "options": small_data.GPT2}
    check_workload(searched(rank, alpha, workload=workload), start_seconds=PATIENCE_SECONDS)
    with pytest.raises(InvalidInput, match=r"parameters\[0\].choices\[1\]: workload.lora_rank = None: .*no effect"):
        check_workload(
            searched(rank, {**alpha, "choices": [8.0, 16.0]}, workload=workload), start_seconds=PATIENCE_SECONDS
        )


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_a_value_that_only_the_model_refuses_is_told_by_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def searched(*widths: int, **options: Any) -> JobPlan:
        width = {"type": "categorical", "name": "workload.width", "choices": list(widths)}
        lr = {"type": "float", "name": "lr", "low": 1e-3, "high": 1e-1}
        workload = {"name": f"{picky_model.__name__}:Picky", "options": options}
        space = {"optimizer": "adamw", "parameters": [lr, width]}
        return plan(workload=workload, search_space=space, baseline=None, target=None)

    for widths, options, field, message in (
        ((4, 6, 5), {}, "search_space.parameters[1].choices[2]", "workload.width = 5: refused by the model of "),
        ((3, 4), {}, "search_space", "its default trial, with workload.width = 3, is impossible: refused by the model"),
        ((3, 4), {"scale": 2.0}, "workload.options", "; the default trial has workload.width = 3"),
    ):
        for check in (check_workload, partial(predict_job, data_are_here=True)):
            with pytest.raises(InvalidInput, match=r"ValueError: the width must be even, got [35] ") as refused:
                check(searched(*widths, **options), start_seconds=PATIENCE_SECONDS)
            assert refused.value.field == field
            assert message in str(refused.value)
    monkeypatch.setattr(memory_estimates, "NUM_SAMPLES", 12)
    for seconds in ("MIN_SAMPLE_SECONDS", "POINT_SECONDS"):
        monkeypatch.setattr(memory_estimates, seconds, PATIENCE_SECONDS)
    estimate = predict_job(searched(4, 5), start_seconds=PATIENCE_SECONDS).memory  # where the data are elsewhere
    assert 3 < estimate.spaces[Phase.SEARCH].num_points < 12, "those that are not refused, which are drawn by a seed"


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
@pytest.mark.parametrize("width", [-2, 10**18, 10**24], ids=["negative", "beyond bytes", "beyond 64 bits"])
def test_an_option_that_gives_a_tensor_an_impossible_size_is_refused(width: int) -> None:
    workload = {"name": f"{picky_model.__name__}:Picky", "options": {"width": width}}
    told = rf"workload.options: the model of .*:Picky has a tensor of sizes \[.*{width}.*\], which "
    with pytest.raises(InvalidInput, match=told):
        check_workload(plan(workload=workload, baseline=None, target=None), start_seconds=PATIENCE_SECONDS)


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_choices_of_an_argument_that_the_optimizer_refuses_with_all_others_are_told_by_their_place() -> None:
    def searched(*parameters: dict[str, Any], **fixed: Any) -> JobPlan:
        return plan(
            search_space={"optimizer": "shampoo", "parameters": list(parameters), "fixed": fixed}, baseline=None
        )

    def choice(name: str, *choices: Any) -> dict[str, Any]:
        return {"type": "categorical", "name": name, "choices": list(choices), "default": choices[0]}

    nesterov = choice("nesterov", False, True)
    momentum = {"type": "float", "name": "momentum", "low": 0.0, "high": 0.9, "default": 0.0}
    for check in (check_workload, predict_job):
        with pytest.raises(InvalidInput, match=r"nesterov = True: .*needs momentum > 0, got .*momentum=0.0") as caught:
            check(searched(nesterov), start_seconds=PATIENCE_SECONDS)
        assert caught.value.field == "search_space.parameters[0].choices[1]"
    for fixed in ({"nesterov": True}, {"solver": "coupled_newton", "pseudo_inverse": True}):
        with pytest.raises(InvalidInput, match="search_space: its default trial is impossible: refused by shampoo"):
            check_workload(searched(**fixed), start_seconds=PATIENCE_SECONDS)
    check_workload(searched(nesterov, momentum), start_seconds=PATIENCE_SECONDS)
    solvers = choice("solver", "eigh", "coupled_newton"), choice("state_dtype", "float32", "int8")
    check_workload(searched(*solvers), start_seconds=PATIENCE_SECONDS)  # each goes with one of the other's
    with pytest.raises(InvalidInput, match=r"parameters\[0\].choices\[1\]: solver = 'coupled_newton'.*eigenvectors"):
        check_workload(searched(solvers[0], state_dtype="int8"), start_seconds=PATIENCE_SECONDS)
