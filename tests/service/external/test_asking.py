"""Clients that train a job's trials: asked over HTTP, answered by the job's run, on both databases."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import httpx
import pytest

from service.domain import FailureReason, JobState, TrialState
from service.store.repositories import RecommendationRepository
from service.store.session import Database
from service.use_cases.steer import cancel_job, pause_job, resume_job
from service.use_cases.steer_trials import stop_trial
from service.use_cases.waiting import BETWEEN_TRIALS, NO_CLIENT
from tests.service.external.worlds import World, world_of
from tests.support.service.scenarios import submit


def test_a_job_waits_for_clients_from_the_last_word_of_one_and_not_between_two_trials(world: World) -> None:
    def waiting() -> Any:
        return world.http.get(f"/v1/jobs/{world.job}").json()["waiting"]

    assert waiting()["for"] == NO_CLIENT
    world.clock.advance(60)
    trial = world.suggest()
    world.clock.advance(30)
    last_word = world.clock()
    world.report(trial, 10, loss=3.0)
    world.clock.advance(BETWEEN_TRIALS.total_seconds())
    assert waiting() is None
    world.clock.advance(1)
    told = waiting()
    assert (told["for"], datetime.fromisoformat(told["since"])) == (NO_CLIENT, last_word)
    world.suggest()
    assert waiting() is None


@pytest.mark.slow
def test_clients_train_a_job_to_its_recommendation(world: World) -> None:
    def waits_for() -> Any:
        waiting = world.http.get(f"/v1/jobs/{world.job}").json()["waiting"]
        return None if waiting is None else waiting["for"]

    assert waits_for() == NO_CLIENT
    first, second = world.suggest("node1"), world.suggest("node2")
    assert waits_for() is None
    assert [first["number"], second["number"]] == [0, 1]
    assert first["config"]["num_steps"] == 10
    assert first["config"]["workload_options"] == {"dropout": first["parameters"]["workload.dropout"]}
    assert world.report(first, 1, 5) == {
        "decision": "continue",
        "status": "answered",
        "recorded_up_to_step": 5,
        "why": None,
    }
    assert (world.trial(0).state, world.trial(0).step) == (TrialState.RUNNING, 5)
    assert world.report(second, 10, loss=3.0)["why"] == "the trial is completed"
    # Said again, as a client does that knows no better; and by one that has lost its lease.
    assert world.end(second)["decision"] == "stop"
    assert world.report(second, 9) == {
        "decision": "stop",
        "status": "answered",
        "recorded_up_to_step": None,
        "why": "the trial is completed",
    }
    world.clock.advance(30)
    done = world.end(first, measurements=[{"step": 10, "metrics": {"validation_loss": 0.2}}])
    assert (done["decision"], done["recorded_up_to_step"]) == ("stop", 10)
    assert world.trial(0).seconds == 30.0
    for loss in (0.5, 0.1):
        world.report(world.suggest(), 10, loss=loss)
    assert world.run.state is JobState.SUCCEEDED
    answer = world.post("suggestions", {})
    assert (answer.status_code, answer.json()["status"]) == (200, "done")
    with world.database.reading() as session:
        recommendation = RecommendationRepository(session).of_job(world.job)
    assert recommendation is not None
    assert recommendation.content["evidence"]["best"]["number"] == 3
    for page in (f"/jobs/{world.job}", "/"):
        assert world.http.get(page).status_code == 200, page
    assert world.http.get(f"/v1/jobs/{world.job}/recommendation").json()["workload"] == "external"


def test_the_same_key_hands_out_one_trial(world: World) -> None:
    assert world.post("suggestions", {}, "one").json() == {
        "status": "waiting",
        "trial": None,
        "job_state": "running",
        "key": "one",
    }
    world.post("suggestions", {}, "one")
    world.run.turn()
    answers = [world.post("suggestions", {}, "one") for _ in range(2)]
    assert answers[0].json() == answers[1].json()
    assert answers[0].headers["Idempotent-Replayed"] == "true"
    assert world.post("suggestions", {"client": "another"}, "one").status_code == 422
    assert world.suggest()["number"] == 1


def test_a_trial_whose_client_is_lost_goes_to_another(world: World) -> None:
    lost = world.suggest("node1")
    world.report(lost, 4)
    for losses in range(1, 5):
        assert world.trial(0).state is TrialState.RUNNING
        world.clock.advance(61)
        world.run.turn()
        if losses == 4:
            break
        assert (world.trial(0).state, world.trial(0).losses) == (TrialState.QUEUED, losses)
        assert world.decision(lost) == "stop"
        again = world.suggest("node2")
        assert (again["number"], again["begins_at_step"], again["parameters"]) == (0, 4, lost["parameters"])
        # What the one that was lost still says changes nothing.
        assert world.report(lost, 9)["decision"] == "stop"
        assert world.trial(0).step == 4
        lost = again
    trial = world.trial(0)
    assert (trial.state, trial.reason) == (TrialState.FAILED, FailureReason.LOST)
    assert "node2 has reported nothing for 60 s" in (trial.detail or "")


def test_a_report_without_measurements_keeps_the_trial(sqlite_world: World) -> None:
    world = sqlite_world
    trial = world.suggest()
    for _ in range(3):
        world.clock.advance(50)
        assert world.report(trial)["decision"] == "continue"
        world.run.turn()
    assert world.trial(0).state is TrialState.RUNNING


def test_a_run_that_is_killed_loses_nothing(world: World) -> None:
    trial = world.suggest()
    world.report(trial, 3)
    lease = {"lease": trial["lease"], "measurements": [{"step": 6, "metrics": {"validation_loss": 0.5}}]}
    # Asked, and not answered when the run dies.
    assert world.post("trials/0/reports", lease, "r").status_code == 202
    assert world.post("suggestions", {}, "s").status_code == 202
    world.run.kill()
    world.restart()
    world.run.turn()
    assert world.post("trials/0/reports", lease, "r").json()["recorded_up_to_step"] == 6
    assert world.post("suggestions", {}, "s").json()["trial"]["number"] == 1
    assert (world.trial(0).state, world.trial(0).step, world.trial(0).losses) == (TrialState.RUNNING, 6, 0)
    # It was killed after it had stored a trial, and before it had handed it out.
    world.run.kill()
    world.restart()
    assert world.report(trial, 10)["why"] == "the trial is completed"
    assert world.suggest()["number"] == 2


def test_a_paused_job_keeps_what_is_reported(world: World) -> None:
    trial = world.suggest()
    world.report(trial, 2)
    with world.database.writing() as session:
        pause_job(session, world.job, now=world.clock())
    assert world.decision(trial) == "pause"
    world.run.end()
    told = world.post(
        "trials/0/reports", {"lease": trial["lease"], "measurements": [{"step": 4, "metrics": {"validation_loss": 1}}]}
    )
    assert (told.status_code, told.json()["decision"]) == (200, "pause")
    waits = world.post("suggestions", {}, "w").json()
    assert (waits["status"], waits["job_state"]) == ("waiting", "paused")
    with world.database.writing() as session:
        resume_job(session, world.job, now=world.clock())
    world.clock.advance(10)  # within the time that a client is still taken to ask
    world.restart()
    world.run.turn()
    world.clock.advance(2)
    world.run.turn()
    assert (world.trial(0).step, world.trial(0).losses) == (4, 0)
    again = world.suggest()
    assert (again["number"], again["begins_at_step"]) in ((0, 4), (2, 0))


def test_a_trial_that_a_user_stops_is_told_so(sqlite_world: World) -> None:
    world = sqlite_world
    trial = world.suggest()
    with world.database.writing() as session:
        stop_trial(session, world.job, 0, now=world.clock())
    assert world.decision(trial) == "stop"
    world.run.signals.told_to_stop = frozenset({0})
    assert world.report(trial, 1)["why"] == "stopped by a user"
    assert world.trial(0).state is TrialState.CANCELLED


def test_whatever_is_told_of_a_job_that_was_cancelled_is_answered_stop(world: World) -> None:
    trial = world.suggest()
    path = "trials/0/reports"
    told = {"lease": trial["lease"], "measurements": [{"step": 4, "metrics": {"validation_loss": 0.5}}]}
    world.report(trial, 3)
    assert world.post(path, told, "asked before").status_code == 202
    with world.database.writing() as session:
        cancel_job(session, world.job, now=world.clock())
    stop = {
        "decision": "stop",
        "status": "answered",
        "recorded_up_to_step": None,
        "why": "the job has ended: cancelled",
    }
    for key in ("asked before", "asked after"):
        answer = world.post(path, told, key)
        assert (answer.status_code, answer.json()) == (200, stop)
    assert world.report(trial) == stop
    assert world.end(trial, outcome="failed", reason="error") == stop
    assert world.end(trial, outcome="released") == stop
    assert world.decision(trial) == "stop"
    assert (world.trial(0).state, world.trial(0).step) == (TrialState.CANCELLED, 3)


@pytest.mark.parametrize(
    ("fields", "state", "reason"),
    [
        ({"outcome": "failed", "reason": "diverged", "detail": "NaN"}, TrialState.FAILED, FailureReason.DIVERGED),
        ({"outcome": "failed", "reason": "lost"}, TrialState.QUEUED, None),
        ({"outcome": "released"}, TrialState.QUEUED, None),
    ],
)
def test_a_client_ends_a_trial(
    sqlite_database: Database, fields: Any, state: TrialState, reason: FailureReason | None
) -> None:
    for world in world_of(sqlite_database):
        trial = world.suggest()
        world.end(trial, **fields)
        assert (world.trial(0).state, world.trial(0).reason) == (state, reason)
        assert world.trial(0).losses == (1 if fields.get("reason") == "lost" else 0)


@pytest.mark.slow
def test_the_search_pauses_and_goes_on(sqlite_database: Database) -> None:
    asked = {"sampler": {"name": "auto"}, "pruner": {}, "training": {"num_steps": 100}, "budget": {"num_trials": 5}}
    for world in world_of(sqlite_database, **asked):
        decisions = []
        for _ in range(60):
            trial = world.suggest()
            # What follows on the measurement at which it is paused counts for nothing.
            steps = range(trial["begins_at_step"] + 5, 101, 5)
            answer = world.report(trial, *steps, loss=1 + trial["parameters"]["lr"])
            decisions.append((trial["number"], answer["decision"], answer["recorded_up_to_step"]))
            if world.run.state.is_final:
                break
        assert {decision for _, decision, _ in decisions} == {"pause", "stop"}
        resumed = [number for number, _, step in decisions if step == 100]
        assert resumed  # paused first, and trained to the end
        assert len(decisions) > len({number for number, _, _ in decisions})


def test_errors_name_the_field(sqlite_world: World) -> None:
    world = sqlite_world
    trial = world.suggest()
    path = "trials/0/reports"

    def fields_of(answer: httpx.Response) -> list[str]:
        assert answer.status_code == 422, answer.text
        return [error["field"] for error in answer.json()["errors"]]

    def measured(step: int, **metrics: float) -> Any:
        return {"lease": trial["lease"], "measurements": [{"step": step, "metrics": metrics}]}

    assert fields_of(world.post(path, measured(11, validation_loss=1))) == ["measurements[0].step"]
    assert fields_of(world.post(path, measured(1, accuracy=1))) == ["measurements[0].metrics"]
    assert world.post("trials/7/reports", measured(1, validation_loss=1)).status_code == 404
    incomplete = world.end(trial)
    assert incomplete["title"] == "The trial is not complete"
    assert "up to step 0, and is complete after 10" in incomplete["detail"]
    ordinary = submit(world.database)
    answer = world.http.post(f"/v1/jobs/{ordinary}/suggestions", json={})
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (409, "trials-trained-here")
