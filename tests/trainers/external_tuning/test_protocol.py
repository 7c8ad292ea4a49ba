"""Submissions, their trials, and their runs up to the goal."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from search_spaces import portfolios, preset
from trainers.config import InvalidConfig, OptimizerConfig
from trainers.external_tuning.goals import GOALS, Goal
from trainers.external_tuning.protocol import NUM_POINTS, drawn, run, submission, trials
from trainers.external_tuning.run_studies import REFUSED, main, read_runs
from trainers.ranks.context import single_process_context

EASY = Goal("digits-mlp", 2.2, 8)
"""A little below the loss of guessing."""


def test_a_space_gives_each_study_five_other_points_and_the_same_ones_again() -> None:
    space = preset("family")
    first, second = drawn(space, NUM_POINTS, seed=0), drawn(space, NUM_POINTS, seed=1)
    assert first == drawn(space, NUM_POINTS, seed=0)
    assert len({json.dumps(point) for point in [*first, *second]}) == 2 * NUM_POINTS
    for point in first:
        assert space.check(point) == point


def test_the_points_of_a_study_are_even_on_the_scale_of_a_parameter() -> None:
    space = preset("adamw")
    rates = [space.parameters[0].to_unit(point["lr"]) for point in drawn(space, 8, seed=3)]  # type: ignore[arg-type]
    assert sorted(int(8 * position) for position in rates) == list(range(8))


def test_a_list_gives_every_study_the_same_points_with_other_seeds() -> None:
    entered = submission("algoperf-shampoo")
    first, second = (list(trials(entered, EASY, study).values()) for study in (0, 1))
    assert [config.optimizer for config in first] == [config.optimizer for config in second]
    assert [config.optimizer.arguments["grafting"] for config in first] == ["adam", "adam", "adam", "sgd", "adam"]
    assert [config.seed for config in [*first, *second]] == list(range(2 * NUM_POINTS))


def test_the_points_of_the_baseline_are_adamws() -> None:
    points = portfolios()["algoperf-adamw"]
    assert [point.optimizer for point in points] == ["adamw"] * NUM_POINTS
    # Beyond the range of the preset, as it was submitted.
    assert points[3].optimizer_arguments["betas"] == [0.8637, 0.6292]


def test_a_run_ends_where_the_goal_is_reached() -> None:
    (key, config), *_ = trials(submission("algoperf-adamw"), EASY, 0).items()
    found = run(key, config, single_process_context())
    assert found.steps_to_goal is not None
    assert 0 < found.steps_to_goal <= 8
    assert found.seconds_to_goal is not None
    (key, config), *_ = trials(submission("algoperf-adamw"), Goal("digits-mlp", 0.0, 2), 0).items()
    missed = run(key, config, single_process_context())
    assert (missed.steps_to_goal, missed.seconds_to_goal) == (None, None)


def test_a_trial_that_diverges_has_missed_the_goal() -> None:
    (key, config), *_ = trials(submission("algoperf-adamw"), Goal("digits-mlp", 0.0, 4), 0).items()
    arguments = {**config.optimizer.arguments, "lr": 1e30}
    wild = dataclasses.replace(config, optimizer=OptimizerConfig("adamw", arguments))
    assert run(key, wild, single_process_context()).steps_to_goal is None


def test_an_unknown_submission_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InvalidConfig, match="did you mean 'algoperf-shampoo'"):
        submission("algoperf-shampo")


def test_the_command_adds_what_is_missing_and_refuses_what_is_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(GOALS, "digits-mlp", EASY)
    path = tmp_path / "runs.jsonl"
    arguments = [str(path), "--submissions", "algoperf-adamw", "--workloads", "digits-mlp", "--studies", "2"]
    assert main(arguments) == 0
    whole = path.read_text()
    found = read_runs(path)
    assert [(one.study, one.trial) for one in found] == [(2, number) for number in range(NUM_POINTS)]
    path.write_text("".join(whole.splitlines(keepends=True)[:-1]))
    assert main(arguments) == 0
    assert [one.key for one in read_runs(path)] == [one.key for one in found]
    path.write_text('{"study": 1}\n')
    assert main(arguments) == REFUSED
    assert f"{path}:1: no run of a study" in capsys.readouterr().err
