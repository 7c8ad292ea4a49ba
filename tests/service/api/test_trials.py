"""Trials, measurements and recommendations over HTTP."""

from __future__ import annotations

import httpx

from service.domain import FailureReason, TrialState
from service.store.repositories import RecommendationRepository
from service.store.session import Database
from tests.service.live import finished_job
from tests.service.scenarios import begin_trial, claimed_job, end_trial, measure, repeat_trial, run_trial


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
    source, repeated = http.get(path).json()["items"]
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
    assert http.get("/v1/recommendations", params={"model": "digits-mlp"}).json() == {"items": []}
    job_id = finished_job(database)
    newest = finished_job(database)
    listed = http.get("/v1/recommendations", params={"model": "digits-mlp"}).json()["items"]
    assert [found["job_id"] for found in listed] == [newest, job_id]
    found = http.get(f"/v1/jobs/{job_id}/recommendation").json()
    assert found == listed[1]
    assert found["evidence"]["best"]["number"] == 2
    assert found["evidence"]["verdict"] == "better"
    assert "lr" in found["config"]
    compile(found["python"], "snippet", "exec")


def test_a_job_that_runs_has_no_recommendation_yet(http: httpx.Client, database: Database) -> None:
    answer = http.get(f"/v1/jobs/{claimed_job(database).job_id}/recommendation")
    assert answer.status_code == 404
    assert "running" in answer.json()["detail"]
