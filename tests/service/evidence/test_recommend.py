"""Recommendations: which trial wins, what the evidence says, and that the snippet really runs."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Sequence
from importlib.metadata import metadata
from typing import Any

import pytest
import torch
from torch import nn

from search_spaces import preset
from service.domain import Direction, FailureReason, Objective, Phase, TrialState
from service.evidence.finished_trial import FinishedTrial
from service.evidence.formats.snippet import python_snippet
from service.evidence.in_words.words import answer_of
from service.evidence.recommend import (
    recommend,
)
from service.evidence.recommended import RecommendedConfig, recommendation_from_json
from service.evidence.types import MIN_TRIED, EvidenceStatus, Verdict
from shampoo import WeightAveraging
from tests.support.service.caveats import sentences
from trainers.config import AveragingConfig, Json, OptimizerConfig, OptimizerName, ScheduleConfig, TrialConfig
from trainers.schedule import factor
from trainers.stored_config import StoredConfig

COMPLETED, PRUNED, FAILED = TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED
METRIC = "validation_loss"

SHAMPOO: dict[str, Json] = {
    "lr": 0.0017490000000000001,
    "betas": [0.9327, 0.99552],
    "epsilon": 1e-06,
    "grafting": "adam",
    "precondition_frequency": 7,
}


def _config(
    optimizer: OptimizerName = "shampoo", arguments: dict[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    if arguments is None:
        arguments = SHAMPOO if optimizer == "shampoo" else {"lr": 0.001}
    return TrialConfig(
        **{
            "workload": "digits-mlp",
            "optimizer": OptimizerConfig(optimizer, arguments),
            "num_steps": 40,
            "evaluate_every": 10,
            "batch_size": 128,
            "seed": 3,
            **fields,
        }
    ).to_json()


def _trial(
    number: int,
    phase: Phase,
    values: Sequence[float | None],
    state: TrialState = COMPLETED,
    *,
    reason: FailureReason | None = None,
    seconds: float = 1.0,
    config: dict[str, Any] | None = None,
) -> FinishedTrial:
    curve = [(10 * i, seconds * i, {METRIC: value, "train_loss": 0.5}) for i, value in enumerate(values, start=1)]
    stored = StoredConfig.of(config or _config("shampoo" if phase is Phase.SEARCH else "adamw"))
    return FinishedTrial(number, phase, state, reason, stored, values[-1] if values else None, curve)


def _recommend(
    *trials: FinishedTrial, direction: Direction = Direction.MINIMIZE, num_pruned: int = MIN_TRIED
) -> RecommendedConfig:
    """The recommendation of these trials, with `num_pruned` further ones on each side that they have."""
    phases = dict.fromkeys(trial.phase for trial in trials)
    further = [
        _trial(100 * (1 + place) + index, phase, [0.9], PRUNED)
        for place, phase in enumerate(phases)
        for index in range(num_pruned)
    ]
    recommendation = recommend([*trials, *further], objectives=[Objective(METRIC, direction)])
    assert recommendation is not None
    return recommendation


def test_the_best_completed_search_trial_is_recommended_with_its_evidence() -> None:
    recommendation = _recommend(
        _trial(0, Phase.SEARCH, [0.9, 0.5, 0.4, 0.3], seconds=2.0),
        _trial(1, Phase.BASELINE, [0.9, 0.7, 0.6, 0.4]),
        _trial(2, Phase.SEARCH, [0.1], PRUNED),
        _trial(3, Phase.SEARCH, [0.8, 0.7, 0.6, 0.5]),
        _trial(4, Phase.SEARCH, [None], FAILED, reason=FailureReason.DIVERGED),
        _trial(5, Phase.BASELINE, [0.9, 0.8, 0.7, 0.6]),
    )
    assert recommendation.optimizer == "shampoo"
    assert recommendation.config == SHAMPOO
    assert recommendation.training == {
        "num_steps": 40,
        "batch_size": 128,
        "gradient_clip_norm": None,
        "accumulation_steps": 1,
        "precision": "float32",
        "averaging": None,
        "compression": None,
    }
    assert recommendation.schedule == {
        "warmup_fraction": 0.05,
        "decay": "cosine",
        "horizon": 1.0,
    }
    evidence = recommendation.evidence
    assert (evidence.best.number, evidence.best.value, evidence.best.seconds) == (0, 0.3, 8.0)
    assert evidence.best.metrics == {METRIC: 0.3, "train_loss": 0.5}
    assert evidence.baseline is not None
    assert (evidence.baseline.number, evidence.baseline.optimizer) == (1, "adamw")
    assert evidence.verdict is Verdict.BETTER
    assert evidence.improvement == pytest.approx(0.25)
    reached = evidence.reached_baseline
    assert reached is not None
    assert (reached.step, reached.baseline_step) == (30, 40)
    assert reached.step_ratio == pytest.approx(4 / 3)
    assert (reached.seconds, reached.baseline_seconds) == (6.0, 4.0)
    assert reached.seconds_ratio == pytest.approx(2 / 3)
    assert evidence.num_trials == {
        "search": {"completed": 2, "failed (diverged)": 1, "pruned": 9},
        "baseline": {"completed": 2, "pruned": 8},
    }
    assert evidence.seeds == [3]
    assert "one seed" in sentences(evidence.caveats)[0]
    assert "favours the search" in sentences(evidence.caveats)[1]


def test_a_metric_that_is_maximised_prefers_the_larger_value() -> None:
    recommendation = _recommend(
        _trial(0, Phase.SEARCH, [0.7, 0.9]),
        _trial(1, Phase.SEARCH, [0.7, 0.95]),
        _trial(2, Phase.BASELINE, [0.6, 0.8]),
        direction=Direction.MAXIMIZE,
    )
    assert recommendation.evidence.best.number == 1
    assert recommendation.evidence.verdict is Verdict.BETTER
    assert recommendation.evidence.improvement == pytest.approx(0.1875)


@pytest.mark.parametrize(
    ("best", "baseline", "verdict", "improvement"),
    [
        (1.0, 1.0, Verdict.EQUAL, 0.0),
        (0.996, 1.0, Verdict.EQUAL, 0.004),
        (1.004, 1.0, Verdict.EQUAL, -0.004),
        (0.98, 1.0, Verdict.BETTER, 0.02),
        (1.02, 1.0, Verdict.WORSE, -0.02),
        (-2.0, -1.0, Verdict.BETTER, 1.0),
        (0.0, 0.0, Verdict.EQUAL, None),
        (0.1, 0.0, Verdict.WORSE, None),
    ],
)
def test_the_verdict_is_honest_and_signed(
    best: float, baseline: float, verdict: Verdict, improvement: float | None
) -> None:
    evidence = _recommend(_trial(0, Phase.SEARCH, [best]), _trial(1, Phase.BASELINE, [baseline])).evidence
    assert evidence.verdict is verdict
    assert evidence.improvement == (None if improvement is None else pytest.approx(improvement))


def test_a_search_that_lost_says_so_in_the_verdict_and_the_snippet() -> None:
    recommendation = _recommend(_trial(0, Phase.SEARCH, [0.9, 0.5]), _trial(1, Phase.BASELINE, [0.9, 0.4]))
    assert recommendation.optimizer == "shampoo"
    assert recommendation.evidence.verdict is Verdict.WORSE
    assert recommendation.evidence.reached_baseline is None
    snippet = python_snippet(recommendation)
    assert "# Provisional: Shampoo trails AdamW at equal steps." in snippet
    assert "`recommend --job JOB --trial 1` prints the config of AdamW." in snippet


@pytest.mark.parametrize(
    ("num_pruned", "told"),
    [
        (0, "1 trial of Shampoo and 1 of AdamW completed or were pruned; below 8 on a side"),
        (MIN_TRIED - 2, "7 trials of Shampoo and 7 of AdamW completed or were pruned; below 8 on a side"),
        (MIN_TRIED - 1, None),
    ],
)
def test_a_side_of_few_trials_leaves_the_verdict_open_in_the_headline(num_pruned: int, told: str | None) -> None:
    verdict = Verdict.BETTER if told is None else Verdict.UNDECIDED
    trials = _trial(0, Phase.SEARCH, [0.9, 0.3]), _trial(1, Phase.BASELINE, [0.9, 0.4])
    evidence = _recommend(*trials, num_pruned=num_pruned).evidence
    assert (evidence.verdict, evidence.status) == (verdict, EvidenceStatus.PROVISIONAL)
    answer = answer_of(evidence)
    assert answer is not None
    if told is not None:
        assert (answer.kind, answer.headline) == ("open", "Undecided: too few trials to tell Shampoo from AdamW")
        assert answer.detail.startswith(told)
    else:
        assert answer.headline == "Provisional: Shampoo leads AdamW at equal steps"
    assert "25" not in answer.headline + answer.detail  # what a search found is no promise


@pytest.mark.parametrize("with_pruned_one", [True, False])
def test_without_a_completed_baseline_there_is_no_comparison(with_pruned_one: bool) -> None:
    others = [_trial(1, Phase.BASELINE, [0.4], PRUNED)] if with_pruned_one else []
    evidence = _recommend(_trial(0, Phase.SEARCH, [0.9, 0.5]), *others).evidence
    assert evidence.verdict is Verdict.NO_BASELINE
    assert (evidence.baseline, evidence.improvement, evidence.reached_baseline) == (None, None, None)
    why = "none of its trials completed" if with_pruned_one else "no trial of one was trained"  # the job may have one
    assert f"There is no baseline to compare with: {why}." in sentences(evidence.caveats)
    (luck,) = [caveat for caveat in sentences(evidence.caveats) if "repeat the winner with fresh seeds" in caveat]
    assert "'Edit and clone' on the job's page, or `shampoo-tuner clone JOB --set confirmation.num_seeds=7`" in luck


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_without_a_completed_search_trial_nothing_is_recommended(value: float | None) -> None:
    trials = [
        _trial(0, Phase.SEARCH, [0.4], PRUNED),
        _trial(1, Phase.SEARCH, [value]),
        _trial(2, Phase.BASELINE, [0.4]),
    ]
    assert recommend(trials, objectives=[Objective(METRIC, Direction.MINIMIZE)]) is None
    assert recommend([], objectives=[Objective(METRIC, Direction.MINIMIZE)]) is None


def test_the_first_of_equal_trials_wins() -> None:
    recommendation = _recommend(_trial(7, Phase.SEARCH, [0.5]), _trial(2, Phase.SEARCH, [0.5]))
    assert recommendation.evidence.best.number == 2


def test_it_is_json_and_the_stored_form_gives_the_same_snippet() -> None:
    recommendation = _recommend(_trial(0, Phase.SEARCH, [0.9, 0.5]), _trial(1, Phase.BASELINE, [0.9, None, 0.6]))
    stored = json.loads(json.dumps(recommendation.to_json(), allow_nan=False))
    assert stored["evidence"]["verdict"] == "better"
    assert recommendation_from_json(stored) == recommendation
    assert python_snippet(recommendation_from_json(stored)) == python_snippet(recommendation)


def _default_arguments(name: str) -> dict[str, Any]:
    space = preset(name)
    return space.assign(space.defaults()).optimizer_arguments


ARGUMENTS: list[tuple[OptimizerName, dict[str, Any]]] = [
    ("shampoo", SHAMPOO),
    ("shampoo", _default_arguments("shampoo")),
    ("shampoo", _default_arguments("shampoo-sgd")),
    ("adamw", {"lr": 3e-4, "betas": [0.9, 0.99]}),
    ("sgd", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("muon", {"lr": 0.01, "momentum": 0.9, "adamw_lr_ratio": 2.0}),
    ("soap-peer", {"lr": 0.01, "precondition_frequency": 5, "max_precondition_dim": 1024}),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "arguments", "decay", "clip", "horizon"),
    [  # any two of an optimizer, a decay and the rest
        (optimizer, arguments, decay, *[(None, 1.0), (0.5, 1.3)][(row + column) % 2])
        for row, (optimizer, arguments) in enumerate(ARGUMENTS)
        for column, decay in enumerate(["cosine", "linear", "constant", "wsd"])
    ],
)
def test_the_snippet_runs_with_exactly_the_recommended_arguments(
    optimizer: OptimizerName, arguments: dict[str, Any], decay: Any, clip: float | None, horizon: float
) -> None:
    if optimizer == "soap-peer":
        pytest.importorskip("pytorch_optimizer")
    fraction = 0.3 if decay == "wsd" else None
    schedule = ScheduleConfig(warmup_fraction=0.1, decay=decay, decay_fraction=fraction, horizon=horizon)
    config = _config(optimizer, arguments, schedule=schedule, gradient_clip_norm=clip)
    snippet = python_snippet(_recommend(_trial(0, Phase.SEARCH, [0.9, 0.5], config=config)))
    assert max(len(line) for line in snippet.splitlines()) <= 120
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    namespace: dict[str, Any] = {"model": model}
    exec(compile(snippet, "snippet", "exec"), namespace)

    group = namespace["optimizer"].param_groups[0]
    for name, value in arguments.items():
        if name == "adamw_lr_ratio":  # of the other groups
            assert namespace["optimizer"].param_groups[-1]["initial_lr"] == value * group["initial_lr"]
            continue
        wanted = tuple(value) if isinstance(value, list) else value
        assert (group["initial_lr"] if name == "lr" else group[name]) == wanted, name
    x, y = torch.randn(16, 5), torch.randint(3, (16,))
    losses = []
    for step in range(40):
        assert group["lr"] == pytest.approx(arguments["lr"] * factor(step, config=schedule, num_steps=40), rel=1e-12)
        loss = nn.functional.cross_entropy(model(x), y)
        losses.append(loss.item())
        namespace["training_step"](loss)
    assert losses[-1] < losses[0]
    if clip is not None:
        norm = torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
        assert norm <= clip * (1 + 1e-5)


@pytest.mark.parametrize("optimizer", ["shampoo", "adamw", "muon"])
@pytest.mark.slow
def test_the_snippet_averages_weights_as_the_trial_did(optimizer: OptimizerName) -> None:
    averaging = AveragingConfig("ema", {"decay": 0.9})
    config = _config(optimizer, {"lr": 0.01}, averaging=averaging, precision="bfloat16", accumulation_steps=4)
    snippet = python_snippet(_recommend(_trial(0, Phase.SEARCH, [0.5], config=config)))
    assert "# Trained in bfloat16 mixed precision." in snippet
    assert "in 4 parts" in snippet
    model = nn.Linear(5, 3)
    namespace: dict[str, Any] = {"model": model}
    exec(compile(snippet, "snippet", "exec"), namespace)
    found = namespace["optimizer"]
    assert isinstance(found, WeightAveraging)
    assert found.arguments.in_use() == {
        "method": "ema",
        "decay": 0.9,
        "warm_up": "bias_correction",
        "update_frequency": 1,
    }
    namespace["training_step"](model(torch.randn(2, 5)).square().mean())


def test_the_snippet_names_the_workload_options_that_its_arguments_were_found_with() -> None:
    config = _config(workload_options={"label_smoothing": 0.1, "hidden_sizes": [64, 32]})
    snippet = python_snippet(_recommend(_trial(0, Phase.SEARCH, [0.5], config=config)))
    assert "# with the workload's options hidden_sizes=[64, 32], label_smoothing=0.1" in snippet
    without = python_snippet(_recommend(_trial(0, Phase.SEARCH, [0.5])))
    assert "options" not in without


def test_the_import_of_the_snippet_says_what_brings_it() -> None:
    lines = python_snippet(_recommend(_trial(0, Phase.SEARCH, [0.5]))).splitlines()
    (line,) = [line for line in lines if line.startswith("from shampoo import ")]
    assert line == f"from shampoo import Shampoo  # pip install {metadata('shampoo-tuner')['Name']}"


def test_a_name_with_line_breaks_cannot_leave_the_comment() -> None:
    config = _config(workload='evil"\nraise SystemExit\r\x0b\u2028#')
    snippet = python_snippet(_recommend(_trial(0, Phase.SEARCH, [0.5], config=config)))
    exec(compile(snippet, "snippet", "exec"), {"model": nn.Linear(2, 2)})
    assert "\nraise" not in snippet


def test_no_value_can_leave_its_argument() -> None:
    hostile = 'adam\'); import os; os.abort()  #\x1b[2J\u202e\n"""'
    arguments: dict[str, Json] = {**SHAMPOO, "grafting": hostile, "betas": [0.9, hostile]}
    averaging = AveragingConfig("ema", {"warm_up": hostile})
    config = _config("shampoo", arguments, averaging=averaging, workload_options={"of": hostile})
    snippet = python_snippet(_recommend(_trial(0, Phase.SEARCH, [0.5], config=config)))
    assert all(line.isprintable() for line in snippet.splitlines())
    calls = [node for node in ast.walk(ast.parse(snippet)) if isinstance(node, ast.Call)]
    given = {keyword.arg: ast.literal_eval(keyword.value) for call in calls for keyword in call.keywords[:5]}
    assert given["grafting"] == given["warm_up"] == hostile
    assert given["betas"] == (0.9, hostile)
    imported = [node for node in ast.walk(ast.parse(snippet)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert "os" not in {name.name for node in imported for name in node.names}


def test_objectives_that_nothing_measures_are_told() -> None:
    trials = [_trial(0, Phase.SEARCH, [0.5]), _trial(1, Phase.BASELINE, [0.6])]
    recommendation = recommend(
        trials,
        objectives=[
            Objective(METRIC, Direction.MINIMIZE),
            Objective("step_seconds", Direction.MINIMIZE),
            Objective("tokens_per_second", Direction.MAXIMIZE),
        ],
    )
    assert recommendation is not None
    assert recommendation.evidence.front == []
    assert "No completed trial measured step_seconds and tokens_per_second as a number." in (
        sentences(recommendation.evidence.caveats)
    )
