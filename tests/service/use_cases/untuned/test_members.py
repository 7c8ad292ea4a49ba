"""The tuned models of a project that have a say in what several models say together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from search_spaces import Scalar
from service.domain import FailureReason, Phase, TrialState
from service.specification.identity import StoredIdentity
from service.store.session import Database
from service.transfer.candidates import EarlyValue
from service.transfer.pooled import PoolMember
from service.transfer.situation import FAMILY_MEMBERS, Situation
from service.use_cases.keeping.deletion import delete_job
from service.use_cases.leases import Lease
from service.use_cases.run import TrialMeasurements, finish_job, record_measurements
from service.use_cases.untuned import members
from service.use_cases.untuned.members import OwnMembers, own_members
from tests.support.service.scenarios import NOW, begin_trial, claimed_job, end_trial, fork_trial, measure, run_trial
from trainers.config import Measurement
from trainers.identity.values import ModelShape, ParameterShape

LOSSES = (0.5, 0.3, 0.2, 0.4, 0.35)
OWN_SPACE: dict[str, Any] = {
    "optimizer": "shampoo",
    "parameters": [{"name": "lr", "type": "float", "low": 1e-4, "high": 1e-1, "scale": "log"}],
}


def shape(width: int) -> ModelShape:
    return ModelShape((ParameterShape("linear", (width, width), 3),))


def identity(width: int = 64) -> StoredIdentity:
    return StoredIdentity(
        f"{width:032d}", "d" * 32, {"device": "cpu", "device_name": None, "world_size": 1, "versions": {}}, shape(width)
    )


def situation(width: int = 128) -> Situation:
    return Situation.of(shape(width), batch_size=128, num_steps=40, workload="digits-mlp")


def values_of(number: int) -> dict[str, Scalar]:
    return {"lr": 0.01 * (number + 1)}


def tuned(database: Database, *, width: int = 64, num_trials: int = 5, **fields: Any) -> str:
    """The id of a job of so many trials, each with a learning rate of its own."""
    lease = claimed_job(database, **fields)
    run_trials(database, lease, width=width, num_trials=num_trials)
    return finished(database, lease)


def run_trials(database: Database, lease: Lease, *, width: int = 64, num_trials: int = 5) -> None:
    for number, loss in enumerate(LOSSES[:num_trials]):
        run_trial(database, lease, number, loss, identity=identity(width), values=values_of(number))


def finished(database: Database, lease: Lease) -> str:
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)
    return lease.job_id


def prune_trial(database: Database, lease: Lease, number: int, losses: Mapping[int, float], *, lr: float) -> None:
    begin_trial(database, lease, number, values={"lr": lr})
    for step, loss in losses.items():
        measure(database, lease, number, step, loss, identity=identity())
    end_trial(database, lease, number, TrialState.PRUNED)


def found_in(database: Database, *, project: str | None = "default", width: int = 128) -> OwnMembers:
    with database.reading() as session:
        return own_members(session, situation(width), FAMILY_MEMBERS, project=project)


def rates(member: PoolMember) -> list[tuple[float | None, float]]:
    """The value and the learning rate of each of its trials."""
    return [(trial.value, float(str(trial.parameters["lr"]))) for trial in member.trials]


def test_the_trials_of_a_job_have_a_say_once_it_has_ended_and_until_it_is_deleted(database: Database) -> None:
    lease = claimed_job(database)
    run_trials(database, lease)
    run_trial(database, lease, 5, 0.1, Phase.BASELINE, identity=identity())
    begin_trial(database, lease, 6, values={"lr": 0.09})
    end_trial(database, lease, 6, TrialState.FAILED, reason=FailureReason.DIVERGED)
    begin_trial(database, lease, 7, values={"lr": 0.06})
    end_trial(database, lease, 7, TrialState.FAILED, reason=FailureReason.ERROR)
    run_trial(database, lease, 8, 0.3, identity=identity(width=32))  # of another model
    fork_trial(database, lease, 9, parent=0, step=20, lr=0.07)
    measure(database, lease, 9, 40, 0.1, identity=identity())
    end_trial(database, lease, 9)
    prune_trial(database, lease, 10, {4: 3.0, 6: 2.0, 16: 1.5}, lr=0.08)
    prune_trial(database, lease, 11, {4: 3.0}, lr=0.07)  # before the first rung
    assert found_in(database) == OwnMembers()
    job_id = finished(database, lease)
    (member,) = found_in(database).members
    assert (member.job_id, member.is_minimised) == (job_id, True)
    assert (member.name, member.situation.digest) == ("digits-mlp, batch size 128, 40 steps", identity().fingerprint)
    completed = [(loss, values_of(number)["lr"]) for number, loss in enumerate(LOSSES)]
    assert rates(member) == [(None, 0.09), *reversed(completed), (None, 0.08)]
    diverged, *whole, pruned = member.trials
    assert (pruned.was_stopped, pruned.early) == (True, EarlyValue(16, 1.5))
    assert (diverged.was_stopped, diverged.early) == (False, None)
    assert [one.early for one in reversed(whole)] == [EarlyValue(10, loss * 4) for loss in LOSSES]
    with database.writing() as session:
        delete_job(session, job_id, now=NOW)
    assert found_in(database) == OwnMembers()


def test_a_project_has_no_say_in_anothers_answers(database: Database) -> None:
    ours, theirs = tuned(database, project="ours"), tuned(database, project="theirs")
    assert [one.job_id for one in found_in(database, project="ours").members] == [ours]
    assert {one.job_id for one in found_in(database, project=None).members} == {ours, theirs}
    assert found_in(database, project="default") == OwnMembers()


def test_the_newest_trials_of_the_nearest_models_have_a_say_and_what_is_left_out_is_said(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "MAX_MEMBERS", 2)
    monkeypatch.setattr(members, "MAX_TRIALS", 4)
    jobs = {width: tuned(database, width=width) for width in (16, 256, 64)}
    tuned(database, width=2**20)  # too far to say anything
    found = found_in(database)
    assert [one.job_id for one in found.members] == [jobs[64], jobs[256]]
    assert [loss for loss, _ in rates(found.members[0])] == [*reversed(LOSSES[1:])]
    assert found.remarks == (
        "of the jobs near this model the 2 nearest have a say, 1 farther ones none",
        "of 2 jobs with more trials 4 have a say, the newest, those that were pruned last",
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"search_space": "adamw"},
        {"search_space": "shampoo-sgd"},
        {"search_space": {**OWN_SPACE, "fixed": {"weight_decay_type": "l2"}}},
    ],
)
def test_what_is_of_another_method_has_no_say(sqlite_database: Database, fields: dict[str, Any]) -> None:
    job_id = tuned(sqlite_database, baselines=[], **fields)
    assert job_id
    assert found_in(sqlite_database) == OwnMembers()


def test_each_members_trials_of_a_job_over_the_family_have_a_say_of_their_own(sqlite_database: Database) -> None:
    lease = claimed_job(sqlite_database, search_space="family", baselines=[])
    of_member = {"soap": LOSSES[:4], "kl": LOSSES[1:], "spectral": LOSSES[:3]}
    number = 0
    for member, losses in of_member.items():
        for loss in losses:
            values: dict[str, Scalar] = {"preconditioner": member, "lr": 0.01}
            run_trial(sqlite_database, lease, number, loss, identity=identity(), values=values)
            number += 1
    finished(sqlite_database, lease)
    found = {one.preset: [value for value, _ in rates(one)] for one in found_in(sqlite_database).members}
    assert found == {"soap": [*reversed(LOSSES[:4])], "kl": [*reversed(LOSSES[1:])]}  # spectral's are too few
    with sqlite_database.reading() as session:
        (of_kl,) = own_members(session, situation(), ["kl"], project=None).members
    assert of_kl.preset == "kl"


def test_what_is_maximised_is_read_so_and_what_is_of_the_machine_has_no_say(sqlite_database: Database) -> None:
    tuned(sqlite_database, objectives=[{"metric": "validation_accuracy"}])
    lease = claimed_job(sqlite_database, objectives=[{"metric": "step_seconds"}])
    for number, seconds in enumerate(LOSSES):
        begin_trial(sqlite_database, lease, number, values=values_of(number))
        measured = Measurement(step=40, epoch=4.0, seconds=1.0, metrics={"step_seconds": seconds})
        with sqlite_database.writing() as session:
            record_measurements(session, lease, [TrialMeasurements(number, [measured], identity(32))], now=NOW)
        end_trial(sqlite_database, lease, number)
    finished(sqlite_database, lease)
    (member,) = found_in(sqlite_database).members
    assert not member.is_minimised
    assert [value for value, _ in rates(member)] == [1 / (1 + loss) for loss in reversed(LOSSES)]


def test_a_model_with_few_trials_has_no_say(sqlite_database: Database) -> None:
    tuned(sqlite_database, num_trials=members.MIN_TRIALS - 1)
    assert found_in(sqlite_database) == OwnMembers()
    lease = claimed_job(sqlite_database)
    run_trials(sqlite_database, lease, num_trials=members.MIN_TRIALS - 1)
    prune_trial(sqlite_database, lease, members.MIN_TRIALS, {10: 4.0}, lr=0.06)
    job_id = finished(sqlite_database, lease)
    assert [one.job_id for one in found_in(sqlite_database).members] == [job_id]


def test_a_config_of_a_space_of_ones_own_is_read_as_one_of_the_preset(sqlite_database: Database) -> None:
    """With what it held fixed, the optimizer's own defaults, and the ends of the preset's ranges."""
    tuned(sqlite_database, search_space={**OWN_SPACE, "fixed": {"epsilon": 1e-12}}, baselines=[])
    (member,) = found_in(sqlite_database).members
    first = member.trials[-1].parameters
    assert first["lr"] == pytest.approx(0.01)
    assert first["epsilon"] == 1e-10
    assert (first["betas[0]"], first["betas[1]"]) == (0.9, 0.999)
