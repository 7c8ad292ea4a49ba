"""Trials, measurements and recommendations over HTTP."""

from __future__ import annotations

import httpx
import pytest

from service.domain import FailureReason, Phase, TrialState
from service.store.repositories import AuditRepository, EventRepository, RecommendationRepository
from service.store.session import Database
from service.use_cases.leases import Lease
from service.use_cases.run import TrialMeasurements, finish_job, record_measurements
from tests.support.service.identities import built_identity
from tests.support.service.live import finished_job
from tests.support.service.scenarios import (
    NOW,
    begin_trial,
    claimed_job,
    end_trial,
    fork_trial,
    measure,
    repeat_trial,
    run_trial,
    specification,
)
from trainers.config import Measurement


def test_trials_are_listed_by_number_in_pages_and_filtered(http: httpx.Client, database: Database) -> None:
    job_id = finished_job(database)
    first = http.get(f"/v1/jobs/{job_id}/trials", params={"page_size": 3}).json()
    assert [trial["number"] for trial in first["items"]] == [0, 1, 2]
    rest = http.get(f"/v1/jobs/{job_id}/trials", params={"page_size": 3, "page_token": first["next_page_token"]}).json()
    assert [trial["number"] for trial in rest["items"]] == [3]
    assert rest["next_page_token"] is None
    baseline = http.get(f"/v1/jobs/{job_id}/trials", params={"phase": "baseline", "state": "completed"}).json()
    assert [trial["number"] for trial in baseline["items"]] == [1]


def test_a_trial_tells_its_config_its_state_and_its_last_measurement(http: httpx.Client, database: Database) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    measure(database, lease, 0, 10, 0.5)
    measure(database, lease, 0, 20, float("nan"))
    end_trial(database, lease, 0, TrialState.FAILED, reason=FailureReason.DIVERGED)
    trial = http.get(f"/v1/jobs/{lease.job_id}/trials/0").json()
    assert (trial["state"], trial["reason"], trial["step"], trial["num_steps"]) == ("failed", "diverged", 20, 40)
    assert trial["metrics"]["validation_loss"] is None
    assert trial["value"] is None
    assert trial["config"]["optimizer"]["name"] == "shampoo"
    assert trial["runs"] == 1


def test_a_confirmation_trial_tells_what_it_confirms(http: httpx.Client, database: Database) -> None:
    lease = claimed_job(database, confirmation={"top_k": 1, "num_seeds": 2})
    run_trial(database, lease, 0, 0.5)
    repeat_trial(database, lease, 1, 0.6, confirms=0, seed=1)
    path = f"/v1/jobs/{lease.job_id}/trials"
    source, repeated = http.get(path, params={"view": "full"}).json()["items"]
    assert (source["phase"], source["confirms"]) == ("search", None)
    assert (repeated["phase"], repeated["confirms"], repeated["config"]["seed"]) == ("confirmation", 0, 1)
    assert [t["number"] for t in http.get(path, params={"phase": "confirmation"}).json()["items"]] == [1]
    phases = http.get(f"/v1/jobs/{lease.job_id}").json()["progress"]["phases"]
    assert phases["confirmation"] == {"num_finished": 1, "num_trials": 4}


def test_a_recommendation_stored_before_there_were_confirmations_is_served_as_ever(
    http: httpx.Client, database: Database
) -> None:
    job_id = finished_job(database)
    with database.writing() as session:
        stored = RecommendationRepository(session).of_job(job_id)
        assert stored is not None
        evidence = {name: value for name, value in stored.content["evidence"].items() if name != "confirmation"}
        stored.content = {**stored.content, "evidence": evidence}
    answer = http.get(f"/v1/jobs/{job_id}/recommendation")
    assert answer.status_code == 200, answer.text
    assert answer.json()["evidence"]["confirmation"] is None
    assert http.get(f"/jobs/{job_id}").status_code == 200


def test_measurements_come_in_pages_by_step(http: httpx.Client, database: Database) -> None:
    lease = claimed_job(database)
    run_trial(database, lease, 0, 0.5)
    path = f"/v1/jobs/{lease.job_id}/trials/0/measurements"
    first = http.get(path, params={"limit": 3}).json()
    assert [measured["step"] for measured in first["items"]] == [10, 20, 30]
    rest = http.get(path, params={"limit": 3, "after_step": first["next_after_step"]}).json()
    assert [measured["step"] for measured in rest["items"]] == [40]
    assert rest["next_after_step"] is None
    assert rest["items"][0]["metrics"]["validation_loss"] == 0.5


def test_a_finished_job_recommends_its_best_config_with_evidence(http: httpx.Client, database: Database) -> None:
    assert http.get("/v1/recommendations", params={"workload": "digits-mlp"}).json()["items"] == []
    job_id = finished_job(database)
    newest = finished_job(database)
    listed = http.get("/v1/recommendations", params={"workload": "digits-mlp"}).json()["items"]
    assert [found["job_id"] for found in listed] == [newest, job_id]
    found = http.get(f"/v1/jobs/{job_id}/recommendation").json()
    assert found == listed[1]
    assert found["evidence"]["best"]["number"] == 2
    assert (found["evidence"]["verdict"], found["evidence"]["status"]) == ("undecided", "provisional")
    assert "lr" in found["config"]
    compile(found["python"], "snippet", "exec")


def test_recommendations_are_asked_for_by_the_users_name_of_the_model(http: httpx.Client) -> None:
    answer = http.post("/v1/jobs", json={"workload": {"name": "digits-mlp"}, "model": " my-gpt "})
    assert (answer.json()["model"], answer.json()["name"], answer.json()["workload"]) == (
        "my-gpt",
        "my-gpt",
        "digits-mlp",
    )
    assert [job["id"] for job in http.get("/v1/jobs", params={"model": "my-gpt"}).json()["items"]] == [
        answer.json()["id"]
    ]
    nothing = http.get("/v1/recommendations", params={"model": "my-gpt", "device": "cuda"}).json()
    assert nothing == {"items": [], "elsewhere": [{"field": "device", "values": []}]}
    nothing = http.get("/v1/recommendations", params={"version": ["torch=2.13.0+cpu", "a b's=1"]}).json()
    assert nothing == {"items": [], "elsewhere": [{"field": "version", "values": []}]}
    for version in ("torch", "=2", "torch=", 'a"=1', "a\\=1", "a=\0"):
        refused = http.get("/v1/recommendations", params={"version": version})
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "version")
    unknown = http.get("/v1/recommendations", params={"model": "my-gtp"})
    assert unknown.status_code == 404
    assert unknown.json()["type"] == "urn:shampoo-tuner:problem:unknown-name"
    [error] = unknown.json()["errors"]
    assert (error["field"], error["value"]) == ("model", "my-gtp")
    assert error["message"] == "no model is called 'my-gtp' (known: my-gpt): did you mean 'my-gpt'?"
    for model in ("", "x" * 201, 7):
        assert http.post("/v1/jobs", json={"workload": {"name": "digits-mlp"}, "model": model}).status_code == 422


@pytest.mark.slow
def test_a_newer_answer_of_the_same_key_leaves_the_older_one_as_history(http: httpx.Client, database: Database) -> None:
    identity = built_identity(specification())
    older, newer = (finished_job(database, identity=identity) for _ in range(2))
    [found] = http.get("/v1/recommendations", params={"fingerprint": identity.fingerprint}).json()["items"]
    assert (found["job_id"], found["superseded"], found["evidence"]["status"]) == (newer, False, "provisional")
    assert found["key"] == {
        "fingerprint": identity.fingerprint,
        "data_digest": identity.data_digest,
        "batch_size": 128,
        "num_steps": 40,
        "precision": "float32",
        "objective": "validation_loss",
    }
    assert found["environment"] == identity.environment
    history = http.get("/v1/recommendations", params={"workload": "digits-mlp", "include": "superseded"}).json()
    assert [(one["job_id"], one["superseded"]) for one in history["items"]] == [(newer, False), (older, True)]
    assert http.get(f"/v1/jobs/{older}/recommendation").json() == history["items"][1]
    assert http.get(f"/v1/jobs/{older}/trials/2").json()["fingerprint"] == identity.fingerprint


def test_a_job_that_runs_has_no_recommendation_yet(http: httpx.Client, database: Database) -> None:
    answer = http.get(f"/v1/jobs/{claimed_job(database).job_id}/recommendation")
    assert answer.status_code == 404
    assert "running" in answer.json()["detail"]


SEVERAL = [{"metric": "validation_loss"}, {"metric": "validation_accuracy"}, {"metric": "best_train_loss"}]


def _measure_once(database: Database, lease: Lease, number: int, phase: Phase, **metrics: float) -> None:
    begin_trial(database, lease, number, phase)
    reported = Measurement(step=40, epoch=4.0, seconds=0.4, metrics=metrics)
    with database.writing() as session:
        record_measurements(session, lease, [TrialMeasurements(number, [reported])], now=NOW)
    end_trial(database, lease, number)


def test_a_job_with_several_objectives_tells_its_front_and_any_trials_config(
    http: httpx.Client, database: Database
) -> None:
    lease = claimed_job(database, objectives=SEVERAL)
    search, baseline = Phase.SEARCH, Phase.BASELINE
    _measure_once(database, lease, 0, search, validation_loss=0.3, validation_accuracy=0.8, best_train_loss=0.1)
    _measure_once(database, lease, 1, baseline, validation_loss=0.5, validation_accuracy=0.9, best_train_loss=0.2)
    _measure_once(database, lease, 2, search, validation_loss=0.2, validation_accuracy=0.7, best_train_loss=0.3)
    _measure_once(database, lease, 3, search, validation_loss=0.4, validation_accuracy=0.7, best_train_loss=0.2)
    path = f"/v1/jobs/{lease.job_id}"
    expected = [
        {
            "number": number,
            "phase": phase,
            "values": {"validation_loss": loss, "validation_accuracy": accuracy, "best_train_loss": train_loss},
        }
        for number, phase, loss, accuracy, train_loss in (
            (2, "search", 0.2, 0.7, 0.3),
            (0, "search", 0.3, 0.8, 0.1),
            (1, "baseline", 0.5, 0.9, 0.2),
        )
    ]
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)
    job = http.get(path).json()
    assert job["objectives"] == [
        {"metric": "validation_loss", "direction": "minimize"},
        {"metric": "validation_accuracy", "direction": "maximize"},
        {"metric": "best_train_loss", "direction": "minimize"},
    ]
    assert job["progress"]["front"] == expected
    recommendation = http.get(f"{path}/recommendation").json()
    assert recommendation["evidence"]["front"] == expected
    assert recommendation["evidence"]["best"]["number"] == 2
    for trial, loss in (("trial 2", 0.2), ("trial 0", 0.3), ("trial 1 (baseline)", 0.5)):
        assert f"{trial}: validation_loss {loss:.4f}, " in recommendation["python"]

    config = http.get(f"{path}/trials/1/config").json()
    measured = http.get(f"{path}/trials/1").json()
    assert (config["number"], config["optimizer"]) == (1, "adamw")
    assert config["config"] == measured["config"]["optimizer"]["arguments"]
    assert "torch.optim import AdamW" in config["python"]
    assert "validation_accuracy (maximize): 0.9" in config["python"]
    assert measured["config"]["summaries"] == ["best_train_loss"]
    page = http.get(f"/jobs/{lease.job_id}").text
    assert [page.count(f'href="/v1/jobs/{lease.job_id}/trials/{number}/config"') for number in range(4)] == [1, 1, 1, 0]
    assert http.get(f"{path}/trials/9/config").status_code == 404
    assert http.get(f"{path}/trials/x/config").json()["errors"][0]["field"] == "number"


def test_a_job_with_one_objective_has_no_front(http: httpx.Client, database: Database) -> None:
    job_id = finished_job(database)
    job = http.get(f"/v1/jobs/{job_id}").json()
    assert (len(job["objectives"]), job["progress"]["front"]) == (1, [])
    assert http.get(f"/v1/jobs/{job_id}/recommendation").json()["evidence"]["front"] == []
    assert "front-title" not in http.get(f"/jobs/{job_id}").text


def test_a_fork_tells_where_it_began_and_is_not_tried_again(http: httpx.Client, database: Database) -> None:
    lease = claimed_job(database, pruner={"name": "pbt"}, baseline=None, budget={"num_trials": 6})
    begin_trial(database, lease, 0)
    measure(database, lease, 0, 10, 0.5)
    fork_trial(database, lease, 1, parent=0, step=10, lr=2e-3)
    first, second = http.get(f"/v1/jobs/{lease.job_id}/trials").json()["items"]
    assert (first["forked_from"], first["forked_at_step"]) == (None, None)
    assert (second["forked_from"], second["forked_at_step"]) == (0, 10)
    end_trial(database, lease, 1, TrialState.PRUNED)
    page = http.get(f"/jobs/{lease.job_id}").text
    assert "fork of #0 at step 10" in page
    assert 'data-act="retry"' not in page
    answer = http.post(f"/v1/jobs/{lease.job_id}/trials/1/retry")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:shampoo-tuner:problem:fork-not-retriable")


def test_a_trial_has_a_note_as_it_was_written(http: httpx.Client, database: Database) -> None:
    job_id = finished_job(database)
    path = f"/v1/jobs/{job_id}/trials/1"
    text = "# *Not* <b>bold</b>\n\n- one\n- `two` é"
    assert http.get(path).json()["note"] is None
    for _ in range(2):
        changed = http.patch(path, json={"note": text})
        assert (changed.status_code, changed.json()["note"], changed.json()["state"]) == (200, text, "completed")
    assert http.get(path).json() == changed.json()
    listed = http.get(f"/v1/jobs/{job_id}/trials").json()["items"]
    assert [trial["note"] for trial in listed] == [None, text, None, None]
    page = http.get(f"/jobs/{job_id}/trials/1").text
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "<b>bold</b>" not in page
    with database.reading() as session:
        events = EventRepository(session).after(0, project=None, limit=200)
        told = [event.data for event in events if event.kind == "trial.changed"]
        actions = [entry.action for entry in AuditRepository(session).page(project=None, limit=10)]
    assert told == [{"number": 1}], "what changes nothing is not told"
    assert actions[:2] == ["change_trial", "change_trial"]
    assert http.patch(path, json={"note": ""}).json()["note"] is None


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({}, "body", "must change something: note"),
        ({"note": None}, "note", "must be a valid string"),
        ({"note": "x" * 20_001}, "note", "at most 20000 characters"),
        ({"note": "a\0b"}, "note", ""),
        ({"note": "", "state": "completed"}, "state", ""),
    ],
)
def test_a_note_that_cannot_be_is_refused_with_its_field(
    sqlite_http: httpx.Client, sqlite_database: Database, body: dict[str, str | None], field: str, message: str
) -> None:
    path = f"/v1/jobs/{finished_job(sqlite_database)}/trials"
    refused = sqlite_http.patch(f"{path}/1", json=body)
    assert refused.status_code == 422
    [error] = refused.json()["errors"]
    assert error["field"] == field
    assert message in error["message"]
    assert sqlite_http.patch(f"{path}/99", json={"note": "x"}).status_code == 404
    assert sqlite_http.patch("/v1/jobs/job_x/trials/1", json={"note": "x"}).status_code == 404
