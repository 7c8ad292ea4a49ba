"""Clients that train a job's trials: asked over HTTP, answered by the job's run, on both databases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from service.domain import FailureReason, JobState, TrialState
from service.store.models import Trial
from service.store.repositories import RecommendationRepository, TrialRepository
from service.store.session import Database
from service.use_cases.steer import cancel_job, pause_job, resume_job, stop_trial
from service.use_cases.waiting import NO_CLIENT
from tests.support.service.external import Run, submit_external
from tests.support.service.live import running
from tests.support.service.scenarios import Clock, submit
from tests.support.waiting import PATIENCE_SECONDS

KEYS = map(str, itertools.count())


@dataclass(slots=True)
class World:
    """A service, a job, its run, and clients that ask without waiting: the test takes the run's turns."""

    http: httpx.Client
    database: Database
    clock: Clock
    job: str
    run: Run

    def post(self, path: str, body: Any, key: str | None = None) -> httpx.Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        url = f"/v1/jobs/{self.job}/{path}"
        return self.http.post(url, json=body, headers=headers, params={"wait_seconds": 0})

    def ask(self, path: str, body: Any) -> Any:
        """The answer after a turn of the run."""
        key = next(KEYS)
        first = self.post(path, body, key)
        if first.status_code != 202:
            return first.json()
        assert first.headers["Retry-After"] == "2"
        self.run.turn()
        return self.post(path, body, key).json()

    def suggest(self, client: str = "node1") -> Any:
        answer = self.ask("suggestions", {"client": client})
        assert answer["status"] == "trial", answer
        return answer["trial"]

    def report(self, trial: Any, *steps: int, loss: float = 1.0, **more: Any) -> Any:
        measurements = [{"step": step, "metrics": {"validation_loss": loss / step}, **more} for step in steps]
        return self.ask(f"trials/{trial['number']}/reports", {"lease": trial["lease"], "measurements": measurements})

    def end(self, trial: Any, **fields: Any) -> Any:
        return self.ask(f"trials/{trial['number']}/end", {"lease": trial["lease"], **fields})

    def decision(self, trial: Any) -> Any:
        path = f"/v1/jobs/{self.job}/trials/{trial['number']}/decision"
        return self.http.get(path, params={"lease": trial["lease"]}).json()["decision"]

    def trial(self, number: int) -> Trial:
        with self.database.reading() as session:
            return TrialRepository(session).get(self.job, number)

    def restart(self) -> None:
        self.run = Run(self.database, clock=self.clock)


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    yield from world_of(database)


@pytest.fixture
def sqlite_world(sqlite_database: Database) -> Iterator[World]:
    """Where the kind of database does not matter."""
    yield from world_of(sqlite_database)


def world_of(database: Database, **fields: Any) -> Iterator[World]:
    clock = Clock()
    job = submit_external(database, **fields)
    run = Run(database, clock=clock)
    with (
        running(database, clock=clock) as url,
        httpx.Client(base_url=url, trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as http,
    ):
        yield World(http, database, clock, job, run)


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


def test_time_that_a_job_is_paused_is_no_training_time(sqlite_world: World) -> None:
    world = sqlite_world
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


@pytest.mark.parametrize(
    ("pruner", "steps"),
    [
        ({"name": "none"}, (1, 5, 10)),
        ({"name": "none"}, (10,)),
        ({"name": "median", "min_steps": 1}, (1, 5, 10)),
        ({"name": "asha"}, (10,)),
    ],
)
def test_a_trial_whose_objective_is_not_finite_has_diverged(
    sqlite_database: Database, pruner: Any, steps: Sequence[int]
) -> None:
    for world in world_of(sqlite_database, pruner=pruner):
        trial = world.suggest()
        world.clock.advance(3)
        measurements = [{"step": step, "metrics": {"validation_loss": None, "other": 1.0}} for step in steps]
        told = world.ask("trials/0/reports", {"lease": trial["lease"], "measurements": measurements})
        why = f"diverged at step {steps[0]}: validation_loss is not finite"
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


def test_a_training_time_longer_than_the_trial_is_old_is_refused(sqlite_world: World) -> None:
    world = sqlite_world
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
