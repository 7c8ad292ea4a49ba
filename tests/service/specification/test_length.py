"""Trials of one length in training examples, whatever their batch size, and which jobs can have that."""

from __future__ import annotations

from typing import Any

import pytest

from search_spaces import SearchSpace
from service.domain import Currency, Phase
from service.errors import InvalidInput
from service.specification.length import (
    BATCH_SIZE,
    compares_whole_trials,
    currency_of,
    takes_equal_seconds,
)
from service.specification.planning import JobPlan, check_proposal, plan_job
from service.specification.trial_lengths.trial_length import JobLength, TrialLength
from tests.support.service.scenarios import specification

LR = {"type": "float", "name": "lr", "low": 1e-4, "high": 1e-2, "scale": "log"}
CHOICES = {"type": "categorical", "name": BATCH_SIZE, "choices": [32, 64, 160]}
RANGE = {"type": "integer", "name": BATCH_SIZE, "low": 16, "high": 256, "scale": "log"}


def searching(*parameters: dict[str, Any], fixed: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    space = {"optimizer": "shampoo", "parameters": [LR, *parameters], "fixed": fixed or {}}
    return {"training": {"num_examples": 6400}, "search_space": space, **fields}


def plan(fields: dict[str, Any]) -> JobPlan:
    return plan_job(specification(**fields))


@pytest.mark.parametrize(
    ("num_examples", "batch_size", "num_steps"), [(6400, 64, 100), (100, 40, 2), (100, 66, 2), (100, 67, 1), (5, 5, 1)]
)
def test_a_trial_has_the_steps_that_come_nearest_to_its_examples(
    num_examples: int, batch_size: int, num_steps: int
) -> None:
    length = TrialLength.of_examples(num_examples, batch_size)
    assert length.num_steps == num_steps
    seen = [length.done_at(step) for step in range(num_steps + 1)]
    assert seen == sorted(set(seen))
    assert seen[-1] == num_examples
    assert all(length.step_at(examples) == step for step, examples in enumerate(seen))


def test_trials_of_all_sides_see_equally_many_examples() -> None:
    planned = plan(searching(CHOICES))
    assert planned.length == JobLength(200, 128, 6400, None, 10 * 128, 32)
    assert (planned.length.whole, planned.length.measured_every, planned.first_judged_at) == (6400, 1280, 1600)
    for side, space in planned.spaces.items():
        for batch_size, num_steps in ((32, 200), (64, 100), (160, 40)):
            config = planned.trial_config(side, space.defaults({BATCH_SIZE: batch_size}))
            assert (config.batch_size, config.num_steps) == (batch_size, num_steps)
            assert (config.evaluate_every, config.evaluate_every_examples) == (None, 1280)


def test_a_baseline_that_says_no_batch_size_searches_those_of_the_search() -> None:
    fixed = {"optimizer": "sgd", "parameters": [LR], "fixed": {BATCH_SIZE: 64}}
    planned = plan(searching(CHOICES, baselines=[{"search_space": "adamw"}, {"search_space": fixed}], budget={}))
    search, adamw, sgd = planned.spaces.values()
    assert adamw.parameters[-1] == search.parameters[-1]
    assert sgd == SearchSpace.from_json(fixed)
    assert planned.trial_config("sgd", sgd.defaults()).batch_size == 64


def test_examples_alone_say_the_steps_of_all_trials() -> None:
    planned = plan({"training": {"num_examples": 6400, "batch_size": 64, "evaluate_every": 25}})
    assert planned.length == JobLength(100, 64, None, 25, None, 64)


@pytest.mark.parametrize(
    ("workload", "options", "per_example"),
    [
        ("stdlib-gpt", {}, 64),
        ("stdlib-gpt", {"size": "small"}, 256),
        ("text-lm", {"path": "t.txt", "size": "llama-124m", "architecture": "llama"}, 1024),
        ("text-lm", {"path": "t.txt", "context_length": 100}, 100),
        ("huggingface", {"context_length": 32}, 32),
    ],
)
def test_tokens_are_as_many_examples_as_make_them_up(workload: str, options: dict[str, Any], per_example: int) -> None:
    asked = {"workload": {"name": workload, "options": options}}
    planned = plan(searching(CHOICES, training={"num_tokens": 640 * per_example + 1}, **asked))
    assert (planned.length.num_examples, planned.num_steps) == (640, 20)
    assert currency_of(planned.specification, planned.spaces) is Currency.TOKENS
    assert compares_whole_trials(planned.specification, planned.spaces)
    alone = plan({"training": {"num_tokens": 640 * per_example, "batch_size": 64}, **asked})
    assert (alone.length.num_examples, alone.num_steps) == (None, 10)
    assert currency_of(alone.specification, alone.spaces) is Currency.STEPS


def test_measurements_are_as_many_examples_apart_as_make_up_the_tokens() -> None:
    asked = {"workload": {"name": "stdlib-gpt", "options": {}}}  # 64 tokens an example
    searched = plan(searching(CHOICES, training={"num_tokens": 64_000, "evaluate_every_tokens": 6_401}, **asked))
    assert (searched.length.measured_every, searched.length.num_examples) == (100, 1000)
    alone = plan({"training": {"num_steps": 20, "batch_size": 64, "evaluate_every_tokens": 8192}, **asked})
    assert (alone.length.evaluate_every, alone.length.evaluate_every_examples) == (None, 128)
    config = alone.trial_config(Phase.SEARCH, alone.spaces[Phase.SEARCH].defaults())
    assert (config.evaluate_every, config.evaluate_every_examples) == (None, 128)


def of_tokens(num_tokens: int, name: str, *parameters: dict[str, Any], **options: Any) -> dict[str, Any]:
    workload = {"name": name, "options": options}
    return searching(CHOICES, *parameters, training={"num_tokens": num_tokens}, workload=workload)


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        (of_tokens(6400, "digits-mlp"), "training.num_tokens", "'digits-mlp' does not say .* got 6400"),
        (of_tokens(6400, "huggingface"), "training.num_tokens", "workload.options.context_length = None does not say"),
        (of_tokens(6400, "stdlib-gpt", size="huge"), "training.num_tokens", "workload.options.size = 'huge' does not"),
        (
            of_tokens(6400, "stdlib-gpt"),
            "search_space.parameters[1]",
            r"a batch of 160 exceeds training.num_tokens = 6400 \(100 examples\)",
        ),
        (
            of_tokens(
                64000,
                "stdlib-gpt",
                {"type": "categorical", "name": "workload.size", "choices": ["tiny", "small"]},
            ),
            "search_space",
            "says workload.size, .* training.num_tokens = 64000 needs",
        ),
        (
            {"training": {"num_tokens": 6400, "num_examples": 100}},
            "training.num_tokens",
            "and so does training.num_examples = 100",
        ),
        ({"training": {"num_tokens": 6400, "num_steps": 9}}, "training.num_tokens", "training.num_steps = 9"),
        (
            {"training": {"evaluate_every_tokens": 6400}},
            "training.evaluate_every_tokens",
            "does not say .* give training.evaluate_every_examples, got 6400",
        ),
        (
            {"training": {"evaluate_every_tokens": 6400, "evaluate_every": 5}, "workload": {"name": "stdlib-gpt"}},
            "training.evaluate_every_tokens",
            r"another of the evaluate_every fields, got 6400 beside \[5\]",
        ),
        (
            {
                "training": {"num_examples": 640, "batch_size": 64, "evaluate_every_tokens": 64_000},
                "workload": {"name": "stdlib-gpt"},
            },
            "training.evaluate_every_tokens",
            r"= 64000 \(1000 examples\) exceeds the trial's 640 examples",
        ),
    ],
)
def test_tokens_that_cannot_be_counted_are_refused_with_the_field(
    fields: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        plan(fields)
    assert caught.value.field == field


def test_a_range_of_batch_sizes_is_for_what_any_number_divides_into() -> None:
    assert plan(searching(RANGE)).num_steps == 400
    with pytest.raises(InvalidInput, match="give them as choices") as caught:
        plan(searching(RANGE, resources={"workers_per_trial": 2}))
    assert caught.value.field == "search_space.parameters[1]"


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        (
            searching(CHOICES, training={"num_steps": 40}),
            "training.num_examples",
            "is required, or training.num_tokens, as",
        ),
        (
            searching(CHOICES, training={"num_steps": 40, "num_examples": 640}),
            "training.num_examples",
            "num_steps = 40",
        ),
        (searching(fixed={BATCH_SIZE: 64}, training={}), "training.num_examples", "is required"),
        (searching(CHOICES, resources={"workers_per_trial": 3}), "training.batch_size", "128 is not divisible"),
        (
            searching(CHOICES, training={"num_examples": 640, "accumulation_steps": 64}),
            "search_space.parameters[1]",
            "32 is not divisible by workers_per_trial = 1 times accumulation_steps = 64",
        ),
        (searching(CHOICES, training={"num_examples": 128}), "search_space.parameters[1]", "a batch of 160 exceeds"),
        ({"training": {"num_examples": 8}}, "training.num_examples", "a batch of 128 exceeds"),
        (searching(CHOICES, training={"num_examples": 640, "evaluate_every": 5}), "training.evaluate_every", "steps"),
        (
            searching(CHOICES, training={"num_examples": 640, "evaluate_every_examples": 641}),
            "training.evaluate_every_examples",
            "641 exceeds the trial's 640 examples",
        ),
        (
            {"training": {"num_steps": 5, "batch_size": 64, "evaluate_every_examples": 321}},
            "training.evaluate_every_examples",
            "321 exceeds the trial's 320 examples",
        ),
        (searching(CHOICES, training={"num_examples": 640, "batch_size": 64}), "training.batch_size", "no effect"),
        (searching(CHOICES, pruner={"name": "pbt"}, budget={}), "pruner.name", "'pbt' compares trials at equal steps"),
        (
            {
                "pruner": {"name": "pbt"},
                "training": {"num_examples": 640, "batch_size": 64, "evaluate_every_examples": 600},
            },
            "training.evaluate_every_examples",
            "leave 'pbt' no step",
        ),
        (searching(CHOICES, pruner={"name": "asha", "min_steps": 9}), "pruner.min_steps", "counts steps"),
        (
            searching(
                {"type": "categorical", "name": "grafting", "choices": ["adam", "sgd"]},
                {**CHOICES, "when": {"grafting": ["adam"]}},
            ),
            "search_space.parameters[2].when",
            "which the baselines search as well",
        ),
    ],
)
def test_what_a_searched_batch_size_does_not_go_with_is_refused_with_the_field(
    fields: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        plan(fields)
    assert (caught.value.field, said in caught.value.message) == (field, True), caught.value


def test_a_proposed_batch_must_divide_among_the_ranks_too() -> None:
    planned = plan(searching(RANGE))
    values, config = check_proposal(planned, Phase.SEARCH, {BATCH_SIZE: 300}, beyond_bounds=True)
    assert (values[BATCH_SIZE], config.num_steps) == (300, 21)
    halves = plan(searching({**CHOICES, "choices": [32]}, resources={"workers_per_trial": 2}))
    with pytest.raises(InvalidInput, match="parameters"):
        check_proposal(halves, Phase.SEARCH, {BATCH_SIZE: 33}, beyond_bounds=True)


@pytest.mark.parametrize(
    ("fields", "currency", "of_whole_trials"),
    [
        ({}, Currency.STEPS, True),
        ({"currency": "tokens"}, Currency.TOKENS, True),
        ({"currency": "seconds"}, Currency.SECONDS, False),
        (searching(CHOICES), Currency.EXAMPLES, True),
        (searching(CHOICES, currency="steps"), Currency.STEPS, False),
    ],
)
def test_a_verdict_is_of_whole_trials_where_all_of_them_spend_the_same(
    fields: dict[str, Any], currency: Currency, of_whole_trials: bool
) -> None:
    planned = plan(fields)
    assert currency_of(planned.specification, planned.spaces) is currency
    assert compares_whole_trials(planned.specification, planned.spaces) is of_whole_trials


STEP_TIMES: list[dict[str, Any]] = [
    {"side": "search", "parameters": {"precondition_frequency": 1}, "seconds": 0.04},
    {"side": "search", "parameters": {"precondition_frequency": 50}, "seconds": 0.02},
    {"side": "adamw", "parameters": {}, "seconds": 0.01},
]


def test_trials_that_take_equally_long_have_steps_by_the_time_of_one() -> None:
    fields = {"search_space": "shampoo", "training": {"num_steps": 400, "batch_size": 64}, "currency": "seconds"}
    unmeasured, planned = plan(fields), plan({**fields, "step_times": STEP_TIMES})
    assert (unmeasured.length.differs, planned.length.differs) == (False, True)
    assert (planned.num_steps, planned.length.whole, planned.length.measured_every) == (400, 400, 10)
    expected = [("search", 1, 100), ("search", 2, 134), ("search", 50, 200), ("adamw", None, 400)]
    for side, period, num_steps in expected:
        given = {} if period is None else {"precondition_frequency": period}
        config = planned.trial_config(side, planned.spaces[side].defaults(given))
        assert config.num_steps == num_steps
        # All are measured at the same shares of their own lengths.
        assert (config.evaluate_every, config.evaluate_every_examples) == (None, round(10 * 64 * num_steps / 400))
        stored = planned.length.of_stored(num_steps=config.num_steps, batch_size=config.batch_size)
        assert stored is not None
        assert [stored.done_at(step) for step in (0, num_steps // 2, num_steps)] == [0, 200, 400]
        assert all(
            stored.done_at(stored.step_at(done)) >= done > stored.done_at(stored.step_at(done) - 1)
            for done in (60, 399)
        )


def test_a_verdict_by_measured_seconds_is_of_whole_trials() -> None:
    for step_times, is_whole in (([], False), (STEP_TIMES, True)):
        planned = plan({"search_space": "shampoo", "currency": "seconds", "step_times": step_times})
        assert currency_of(planned.specification, planned.spaces) is Currency.SECONDS
        assert compares_whole_trials(planned.specification, planned.spaces) is is_whole


@pytest.mark.parametrize(
    "fields",
    [
        {"search_space": "shampoo"},
        {"search_space": "shampoo", "currency": "seconds", "pruner": {"name": "pbt"}, "sampler": {"name": "random"}},
        searching(CHOICES, currency="seconds"),
    ],
)
def test_times_of_a_step_count_only_where_they_say_how_long_trials_are(fields: dict[str, Any]) -> None:
    assert not takes_equal_seconds(plan(fields).specification, plan(fields).spaces)
    with pytest.raises(InvalidInput, match="have no effect: trials take equally long with currency") as refused:
        plan({**fields, "step_times": STEP_TIMES})
    assert refused.value.field == "step_times"
