"""One model of all trials of several tuned models, moved to one that was never tuned."""

from __future__ import annotations

import dataclasses
import io
import sys
from collections.abc import Mapping

import numpy as np
import pytest

from search_spaces import Scalar, preset
from service.scheduler.policy.pooled_trials import (
    answers,
    fitted,
    main,
    pooled_answer,
    shipped_hyperparameters,
)
from service.scheduler.policy.searching.encoding import Array, Encoding
from service.specification.search.pauses import first_pause
from service.transfer.candidates import EarlyValue, TunedTrial
from service.transfer.pooled import PooledAnswer, PooledAnswers, PoolMember, PoolQuestion, table_members
from service.transfer.promise import compared_presets
from service.transfer.situation import FAMILY_MEMBERS, Situation, distance
from trainers.identity.values import ModelShape, ParameterShape
from trainers.workloads.messages import answer_from_line

SPACE = preset("adamw")
ENCODING = Encoding(SPACE)
MIDDLE = np.full(ENCODING.num_dimensions, 0.5)
LOW, HIGH = MIDDLE - 0.2, MIDDLE + 0.2


def situation(*, width: int = 64, batch_size: int = 64, workload: str = "mine") -> Situation:
    shape = ModelShape((ParameterShape("linear", (width, width), 4),))
    return Situation.of(shape, batch_size=batch_size, num_steps=500, workload=workload)


def member(optimum: Array, of: Situation, *, num_trials: int = 40, seed: int = 0) -> PoolMember:
    """A tuned model whose objective grows with the square of the distance from a vector."""
    drawn = ENCODING.snap(np.random.default_rng(seed).random((num_trials, ENCODING.num_dimensions)))
    trials = tuple(
        TunedTrial(float(0.1 + np.square(vector - optimum).sum()), ENCODING.decode(vector)) for vector in drawn
    )
    return PoolMember(f"{of.features.width:g} wide", "adamw", of, trials)


def answer(target: Situation, *members: PoolMember) -> PooledAnswer:
    return pooled_answer(members, target, hyperparameters=fitted(members[:1]))


def vector_of(found: PooledAnswer) -> Array:
    return ENCODING.encode(found.parameters)


def test_a_model_that_was_tuned_itself_is_answered_nearly_its_own_optimum() -> None:
    tuned = member(LOW, situation())
    found = answer(tuned.situation, tuned)
    best = min(np.square(ENCODING.encode(trial.parameters) - LOW).sum() for trial in tuned.trials)
    assert np.square(vector_of(found) - LOW).sum() < best / 4  # better than the best of its trials
    assert SPACE.check(found.parameters) == pytest.approx(found.parameters)
    assert (found.preset, found.num_trials, len(found.shares)) == ("adamw", 40, 1)


def test_misleading_trials_far_away_change_little_and_near_ones_much() -> None:
    tuned = member(LOW, situation())
    target, near = tuned.situation, member(HIGH, situation(), seed=1)
    far = dataclasses.replace(near, situation=situation(workload="other", width=64 * 2**6))
    assert distance(far.situation, target).total > 6
    alone, beside_far, beside_near = (
        vector_of(answer(target, *members)) for members in ([tuned], [tuned, far], [tuned, near])
    )
    assert np.abs(beside_far - alone).max() < 0.1
    assert np.abs(beside_near - alone).max() > 0.15


def test_the_nearer_a_model_the_larger_its_share() -> None:
    near, far = member(MIDDLE, situation(width=128)), member(MIDDLE, situation(width=1024), seed=1)
    far = dataclasses.replace(far, job_id="job_1")
    found = answer(situation(), far, near)
    assert [(one.name, one.job_id) for one in found.shares] == [("128 wide", None), ("1024 wide", "job_1")]
    assert found.shares[0].share > 2 * found.shares[1].share
    assert sum(one.share for one in found.shares) == pytest.approx(1)


def test_the_rules_move_all_of_a_model_of_the_same_data_and_of_others_learning_rate_and_decay_alone() -> None:
    small_batch, large_batch = situation(batch_size=64), situation(batch_size=256)
    own, other = (
        answer(large_batch, member(MIDDLE, dataclasses.replace(small_batch, workload=workload), num_trials=100))
        for workload in ("mine", "other")
    )
    tuned = ENCODING.decode(MIDDLE)

    def of_average(values: Mapping[str, Scalar]) -> float:
        return 1 - float(str(values["betas[1]"]))

    assert of_average(own.parameters) > 2.5 * of_average(tuned)  # the rule has four times as much
    assert of_average(other.parameters) < 1.6 * of_average(tuned)
    expected = float(str(tuned["lr"])) * 2 * 4**-0.32  # √batch, and examples of the training
    for found in (own, other):
        assert found.parameters["lr"] == pytest.approx(expected, rel=0.4)


def test_a_trial_that_diverged_counts_as_the_worst_one() -> None:
    tuned = member(MIDDLE, situation())
    diverged = [
        dataclasses.replace(trial, value=None) if ENCODING.encode(trial.parameters)[0] > 0.5 else trial
        for trial in tuned.trials
    ]
    found = answer(tuned.situation, dataclasses.replace(tuned, trials=diverged))
    assert vector_of(found)[0] < vector_of(answer(tuned.situation, tuned))[0] - 0.02


def test_trials_that_were_pruned_tell_where_the_best_config_is_not() -> None:
    """The search finished the best of them alone, which differ little in how good they are."""
    tuned = member(LOW, situation())
    first = first_pause(tuned.situation.num_steps)
    measured = [
        dataclasses.replace(trial, early=EarlyValue(first, 3 * (trial.value or 0.0)))
        for trial in sorted(tuned.trials, key=lambda trial: trial.value or 0.0)
    ]
    finished = measured[:6]
    pruned = [dataclasses.replace(trial, value=None, was_stopped=True) for trial in measured[6:]]
    alone, beside_pruned = (
        vector_of(answer(tuned.situation, dataclasses.replace(tuned, trials=trials)))
        for trials in (finished, [*finished, *pruned])
    )
    assert np.square(beside_pruned - LOW).sum() < np.square(alone - LOW).sum() / 2


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILY_MEMBERS)
def test_the_shipped_hyperparameters_are_those_of_a_fit_of_the_shipped_table(name: str) -> None:
    """Processors round differently, and a fit may end a little elsewhere."""
    assert shipped_hyperparameters(name) == pytest.approx(fitted(table_members(name)), abs=0.05)


@pytest.mark.parametrize("name", FAMILY_MEMBERS)
@pytest.mark.parametrize("place", range(3))
def test_a_model_of_the_shipped_table_is_answered_mostly_by_its_own_trials(place: int, name: str) -> None:
    members = table_members(name)
    tuned = members[place]
    found = pooled_answer(members, tuned.situation, hyperparameters=shipped_hyperparameters(name))
    assert found.shares[0].name == tuned.name
    assert found.shares[0].share > 0.5
    best = sorted(tuned.trials, key=lambda trial: trial.value or float("inf"))[:4]
    rates = [float(str(trial.parameters["lr"])) for trial in best]
    assert min(rates) / 1.5 < float(str(found.parameters["lr"])) < 1.5 * max(rates)


def test_a_projects_own_trials_put_their_preset_first() -> None:
    table = table_members("spectral")
    own = dataclasses.replace(table[0], name="mine", job_id="job_1")
    question = PoolQuestion(table[0].situation, FAMILY_MEMBERS, (own,), asks_table=True)
    without = dataclasses.replace(question, own=())
    assert answers(question).of_presets[0].preset == "spectral"
    in_order = [one.preset for one in answers(without).of_presets]
    compared = compared_presets([one for name in FAMILY_MEMBERS for one in table_members(name)], question.target)
    assert compared is not None
    assert in_order == [one.preset for one in compared.presets]


def test_nothing_is_said_of_presets_that_no_model_compares() -> None:
    of_soap, of_kl = (
        [
            dataclasses.replace(one, name=f"{name} {place}", job_id="job_1")
            for place, one in enumerate(table_members(name)[:2])
        ]
        for name in ("soap", "kl")
    )
    question = PoolQuestion(of_soap[0].situation, FAMILY_MEMBERS, (*of_soap, *of_kl), asks_table=False)
    found = answers(question).of_presets
    assert {one.preset for one in found} == {"soap", "kl"}
    assert not any(one.remarks for one in found)


def test_what_is_maximised_says_the_same_as_what_is_minimised() -> None:
    tuned = member(LOW, situation())
    turned = [dataclasses.replace(trial, value=-(trial.value or 0.0)) for trial in tuned.trials]
    found = answer(tuned.situation, dataclasses.replace(tuned, trials=turned, is_minimised=False))
    assert np.square(vector_of(found) - LOW).max() < 0.01


def test_the_command_prints_the_answer_of_the_shipped_table_and_of_jobs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = table_members("shampoo")
    target = table[1].situation
    early = [dataclasses.replace(trial, early=EarlyValue(15, 2.0)) for trial in table[0].trials]
    own = dataclasses.replace(table[0], name="mine", job_id="job_1", trials=tuple(early))
    question = PoolQuestion(target, FAMILY_MEMBERS, (own,), asks_table=True)
    members = question.members("shampoo")
    assert members == [*table, own]
    monkeypatch.setattr(sys, "stdin", io.StringIO(question.to_text()))
    main()
    found = answer_from_line(capsys.readouterr().out, PooledAnswers.from_json)
    assert isinstance(found, PooledAnswers)
    (printed,) = [one for one in found.of_presets if one.preset == "shampoo"]
    expected = pooled_answer(members, target, hyperparameters=shipped_hyperparameters("shampoo"))
    assert printed == dataclasses.replace(expected, parameters=dict(expected.parameters))
    assert printed.num_trials == sum(len(one.trials) for one in members)
    assert printed.job_ids == {"job_1"}
    assert printed.shares[0].name == "digits-mlp width=256, batch size 32, 100 steps"  # the target itself
