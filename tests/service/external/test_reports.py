"""Reports of clients: how long they trained, objectives that are not finite, and trials that are no longer theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from service.domain import FailureReason, JobState, TrialState
from service.store.session import Database
from service.use_cases.steer import pause_job, resume_job
from tests.service.external.worlds import World, world_of


def test_time_that_a_job_is_paused_is_no_training_time(world: World) -> None:
    trial = world.suggest()
    world.clock.advance(2)
    with world.database.writing() as session:
        pause_job(session, world.job, now=world.clock())
    world.run.end()
    measured = {"step": 4, "metrics": {"validation_loss": 1}}
    told = world.post("trials/0/reports", {"lease": trial["lease"], "measurements": [measured]})
    assert told.json()["decision"] == "pause"
    world.clock.advance(600)
    with world.database.writing() as session:
        resume_job(session, world.job, now=world.clock())
    world.restart()
    world.run.turn()
    assert (world.trial(0).seconds, world.trial(0).spent_seconds) == (2.0, 2.0)
    world.clock.advance(2)
    world.run.turn()
    again = world.suggest()
    assert again["number"] == 0
    world.clock.advance(3)
    world.report(again, 10)
    assert (world.trial(0).seconds, world.trial(0).spent_seconds) == (5.0, 5.0)


def test_what_is_reported_while_no_run_serves_is_as_old_as_its_request(sqlite_world: World) -> None:
    world = sqlite_world
    trial = world.suggest()
    body = {"lease": trial["lease"], "measurements": [{"step": 4, "metrics": {"validation_loss": 1}}]}
    world.clock.advance(5)
    assert world.post("trials/0/reports", body, "late").status_code == 202
    world.run.kill()
    world.clock.advance(40)
    assert world.post("trials/0/reports", body, "late").status_code == 202  # its client asks again
    world.restart()
    world.run.turn()
    assert world.trial(0).seconds == 5.0
    world.clock.advance(5)  # it has been trained all the time
    world.report(trial, 10)
    assert world.trial(0).seconds == 50.0


def test_a_client_that_has_lost_its_trial_does_not_release_it_for_another(sqlite_world: World) -> None:
    world = sqlite_world
    lost = world.suggest("node1")
    world.report(lost, 2)
    world.clock.advance(61)
    world.run.turn()
    own = world.suggest("node2")
    assert own["number"] == 0
    with world.database.writing() as session:
        pause_job(session, world.job, now=world.clock())
    body = {"lease": lost["lease"], "measurements": [{"step": 9, "metrics": {"validation_loss": 1}}]}
    told = world.post("trials/0/reports", body)
    assert (told.status_code, told.json()["decision"], told.json()["why"]) == (200, "stop", "the lease has ended")
    world.run.end()
    with world.database.writing() as session:
        resume_job(session, world.job, now=world.clock())
    world.restart()
    world.clock.advance(2)
    world.run.turn()
    assert world.report(own, 4)["decision"] == "continue"
    assert (world.trial(0).step, world.trial(0).runs) == (4, 3)


def test_a_client_that_left_as_it_asked_and_was_told_of_a_pause_costs_its_trial_no_loss(world: World) -> None:
    trial = world.suggest()
    world.report(trial, 2)
    with world.database.writing() as session:
        pause_job(session, world.job, now=world.clock())
    assert world.decision(trial) == "pause"
    world.run.end()
    with world.database.writing() as session:
        resume_job(session, world.job, now=world.clock())
    world.restart()
    world.run.turn()
    for losses in (0, 1):
        world.clock.advance(61)
        world.run.turn()
        assert (world.trial(0).state, world.trial(0).step, world.trial(0).losses) == (TrialState.QUEUED, 2, losses)
        assert world.suggest()["number"] == 0


@pytest.mark.parametrize(
    ("pruner", "steps", "value"),
    [
        ({"name": "none"}, (1, 5, 10), None),
        ({"name": "none"}, (10,), None),
        ({"name": "median", "min_steps": 1}, (1, 5, 10), None),
        ({"name": "asha"}, (10,), None),
        ({"name": "none"}, (1, 5, 10), -1e300),
    ],
)
def test_a_trial_whose_objective_is_not_finite_or_far_too_large_has_diverged(
    sqlite_database: Database, pruner: Any, steps: Sequence[int], value: float | None
) -> None:
    for world in world_of(sqlite_database, pruner=pruner):
        trial = world.suggest()
        world.clock.advance(3)
        measurements = [{"step": step, "metrics": {"validation_loss": value, "other": 1.0}} for step in steps]
        told = world.ask("trials/0/reports", {"lease": trial["lease"], "measurements": measurements})
        fault = "not finite" if value is None else "-1e+300, beyond 1e+50"
        why = f"diverged at step {steps[0]}: validation_loss is {fault}"
        assert (told["decision"], told["recorded_up_to_step"], told["why"]) == ("stop", steps[0], why)
        ended = world.trial(0)
        assert (ended.state, ended.reason, ended.detail) == (TrialState.FAILED, FailureReason.DIVERGED, why)
        assert (ended.step, ended.value, ended.spent_seconds) == (steps[0], None, 3.0)
        world.run.kill()
        world.restart()  # for which it has ended as well
        for number in (1, 2, 3):
            following = world.suggest()
            assert following["number"] == number
            world.report(following, 10)
        assert world.run.state is JobState.SUCCEEDED
        assert world.http.get(f"/jobs/{world.job}").status_code == 200
        assert world.http.get(f"/jobs/{world.job}/trials/0").status_code == 200


def test_another_metric_may_be_not_finite(sqlite_world: World) -> None:
    world = sqlite_world
    trial = world.suggest()
    measured = [{"step": step, "metrics": {"validation_loss": 0.5, "perplexity": None}} for step in (5, 10)]
    told = world.ask("trials/0/reports", {"lease": trial["lease"], "measurements": measured})
    assert told["why"] == "the trial is completed"
    assert (world.trial(0).state, world.trial(0).value) == (TrialState.COMPLETED, 0.5)


def test_a_second_objective_that_is_not_finite_fails_its_trial(sqlite_database: Database) -> None:
    metrics = {"validation_loss": "minimize", "accuracy": "maximize"}
    two = [{"metric": name} for name in metrics]
    for world in world_of(sqlite_database, external={"lease_seconds": 60.0, "metrics": metrics}, objectives=two):
        trial = world.suggest()
        measured = [{"step": 5, "metrics": {"validation_loss": 0.5, "accuracy": None}}]
        told = world.ask("trials/0/reports", {"lease": trial["lease"], "measurements": measured})
        assert told["why"] == "diverged at step 5: accuracy is not finite"
        assert world.trial(0).reason is FailureReason.DIVERGED


def test_a_training_time_longer_than_the_trial_is_old_is_refused(world: World) -> None:
    trial = world.suggest()
    world.clock.advance(30)
    measured = {"step": 5, "metrics": {"validation_loss": 1}, "seconds": 1.8e9}
    for path in ("trials/0/reports", "trials/0/end"):
        answer = world.post(path, {"lease": trial["lease"], "measurements": [measured]})
        assert answer.status_code == 422, path
        [error] = answer.json()["errors"]
        assert (error["field"], error["pointer"]) == ("measurements[0].seconds", "/measurements/0/seconds")
        assert "1.8e+09" in error["message"]
        assert "30 s" in error["message"]
    assert world.trial(0).spent_seconds == 0.0
    # The trial is as old with its next client.
    world.end(trial, outcome="released")
    world.clock.advance(100)
    assert world.report(world.suggest(), 5, seconds=130.0)["decision"] == "continue"
    assert world.trial(0).spent_seconds == 130.0


def test_a_trial_that_clients_give_back_at_the_same_step_again_and_again_fails(sqlite_world: World) -> None:
    """As a training that reports every third step of ten does: it never comes to the last one."""
    world = sqlite_world
    for losses in (0, 1, 2):
        trial = world.suggest()
        assert trial["number"] == 0
        world.report(trial, 3, 6, 9)
        world.end(trial, outcome="released")
        assert (world.trial(0).state, world.trial(0).losses) == (TrialState.QUEUED, losses)
    while world.trial(0).state is TrialState.QUEUED:
        trial = world.suggest()
        world.report(trial, 9)
        world.end(trial, outcome="released", detail="the loop has ended")
    assert world.trial(0).reason is FailureReason.LOST
    assert world.trial(0).detail == ("lost 4 times; last: released by node1 at step 9 of 10 again: the loop has ended")


def test_a_trial_that_gets_on_may_be_given_back_as_often_as_it_likes(sqlite_world: World) -> None:
    world = sqlite_world
    for step in range(1, 10):
        trial = world.suggest()
        world.report(trial, step)
        world.end(trial, outcome="released")
    assert (world.trial(0).state, world.trial(0).losses) == (TrialState.QUEUED, 0)


def test_measurements_out_of_order_are_refused_with_their_steps(sqlite_world: World) -> None:
    trial = sqlite_world.suggest()
    measured = [{"step": step, "metrics": {"validation_loss": 1}} for step in (4, 2)]
    refused = sqlite_world.post("trials/0/reports", {"lease": trial["lease"], "measurements": measured})
    assert refused.status_code == 422
    assert "each once, got the steps [4, 2]" in refused.json()["detail"]
