"""The winners' trained weights: which stay, and how they are downloaded."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from service.access.caller import Scope
from service.checkpoint_files import weights_of
from service.cli.commands import app
from service.client import ApiError, AsyncClient, Client
from service.domain import Phase, WeightsOf
from service.scheduler.kept_weights import keep_winners_of_all
from service.scheduler.removal import remove_next
from service.settings import Settings
from service.store.repositories import JobRepository
from service.store.session import Database
from service.use_cases.keeping.deletion import delete_job
from service.use_cases.run import finish_job
from tests.support import event_loop
from tests.support.service.callers import asking, bearer, give_token
from tests.support.service.live import finished_job
from tests.support.service.scenarios import NOW, claimed_job, repeat_trial, run_trial

PROJECT = "vision"


def write(place: Path, job_id: str, number: int) -> Path:
    path = place / "weights" / job_id / str(number) / "model.safetensors"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"of trial %d" % number)
    return path


def confirmed_job(database: Database, place: Path, **fields: object) -> str:
    """A job whose trials 2, 4 and 6 confirm its best config and 3, 5 and 7 its baseline's, with weights of all."""
    confirmation = {"top_k": 1, "num_seeds": 3}
    lease = claimed_job(database, confirmation=confirmation, project=PROJECT, **fields)
    run_trial(database, lease, 0, 0.5)
    run_trial(database, lease, 1, 0.6, Phase.BASELINE)
    for index, loss in enumerate([0.52, 0.62, 0.53, 0.61, 0.51, 0.63]):
        repeat_trial(database, lease, 2 + index, loss, confirms=index % 2, seed=1 + index // 2)
        write(place, lease.job_id, 2 + index)
    keep_winners_of_all(database, place)
    assert len(list((place / "weights" / lease.job_id).iterdir())) == 6, "the job goes on"
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)
    return lease.job_id


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Of the checkpoints."""
    return tmp_path / "checkpoints"


@pytest.fixture
def url(sqlite_database: Database, place: Path) -> Iterator[str]:
    with asking(sqlite_database, checkpoint_directory=str(place)) as asked:
        yield asked.url


@pytest.mark.slow
def test_the_winners_weights_are_downloaded_by_whoever_sees_the_job(
    sqlite_database: Database, place: Path, tmp_path: Path, url: str
) -> None:
    own = give_token(sqlite_database, "own", Scope.READ, project=PROJECT)
    foreign = give_token(sqlite_database, "foreign", Scope.READ, project="audio")
    job_id = confirmed_job(sqlite_database, place)
    path = f"{url}/v1/jobs/{job_id}/weights/recommended"
    with httpx.Client(headers=bearer(own), trust_env=False, verify=False) as http:
        recommendation = http.get(f"{url}/v1/jobs/{job_id}/recommendation").json()
        assert recommendation["weights"] == {side: f"/v1/jobs/{job_id}/weights/{side}" for side in WeightsOf}
        whole = http.get(path)
        assert (whole.content, whole.headers["content-length"]) == (b"of trial 6", "10")
        asked = {"Range": "bytes=3-", "If-Range": whole.headers["etag"]}
        part = http.get(path, headers=asked)
        assert (part.status_code, part.content) == (206, b"trial 6")
        assert http.get(path, headers=asked | {"If-Range": '"another"'}).content == b"of trial 6"
        page = http.get(f"{url}/jobs/{job_id}")
        assert f'href="/v1/jobs/{job_id}/weights/baseline"' in page.text
        assert http.get(path.replace("recommended", "other")).status_code == 422
        assert http.get(path, headers=bearer(foreign)).status_code == 404
    with Client(url, token=own) as client:
        client.download_weights(job_id, tmp_path / "baseline", side=WeightsOf.BASELINE)
        (place / "weights" / job_id / "6" / "model.safetensors").unlink()
        with pytest.raises(ApiError, match="none of trial 6 were written") as refused:
            client.download_weights(job_id, tmp_path / "missing")
    assert refused.value.status == 404
    assert (tmp_path / "baseline").read_bytes() == b"of trial 5"
    assert not (tmp_path / "missing").exists()

    async def download() -> None:
        async with AsyncClient(url, token=own) as client:
            await client.download_weights(job_id, tmp_path / "later", side=WeightsOf.BASELINE)

    event_loop.run(download())
    target = tmp_path / "shell.safetensors"
    command = ["weights", job_id, "--baseline", "-o", str(target), "--url", url, "--token", own]
    result = CliRunner().invoke(app, [*command, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"job_id": job_id, "path": str(target), "num_bytes": 10, "side": "baseline"}
    assert target.read_bytes() == (tmp_path / "later").read_bytes() == b"of trial 5"
    target.write_bytes(b"precious")
    again = CliRunner().invoke(app, command)
    assert (again.exit_code, again.output) == (
        1,
        f"shampoo-tuner: {target} is there already; --overwrite replaces it\n",
    )
    assert target.read_bytes() == b"precious"


@pytest.mark.slow
def test_why_there_are_none_is_told(sqlite_database: Database, place: Path, url: str) -> None:
    token = give_token(sqlite_database, "own", Scope.READ, project=PROJECT)
    never = confirmed_job(sqlite_database, place, keep_weights=False)
    keep_winners_of_all(sqlite_database, place)
    (place / "weights" / never / "6" / "model.safetensors").unlink()
    unconfirmed = finished_job(sqlite_database, project=PROJECT)
    running = claimed_job(sqlite_database, project=PROJECT).job_id
    expected = {never: "keep_weights is false", unconfirmed: "no trial confirmed", running: "has not ended"}
    with httpx.Client(headers=bearer(token), trust_env=False, verify=False) as http:
        for job_id, why in expected.items():
            answer = http.get(f"{url}/v1/jobs/{job_id}/weights/recommended")
            assert answer.status_code == 404
            assert why in answer.json()["detail"]
        assert http.get(f"{url}/v1/jobs/{never}/recommendation").json()["weights"] == {}


@pytest.mark.slow
def test_those_of_the_winners_stay_until_the_job_is_deleted(sqlite_database: Database, place: Path) -> None:
    job_id = confirmed_job(sqlite_database, place)
    write(place, "job_of_another_database", 0)
    for _ in range(2):
        keep_winners_of_all(sqlite_database, place)
        assert sorted(path.name for path in (place / "weights" / job_id).iterdir()) == ["5", "6"]
    with sqlite_database.writing() as session:
        delete_job(session, JobRepository(session).get(job_id).id, now=NOW)
    settings = Settings(data_dir=place.parent, checkpoint_directory=str(place))
    late = NOW + timedelta(minutes=1)
    assert remove_next(sqlite_database, settings, gone=threading.Event(), clock=lambda: late) == job_id
    assert weights_of(place, "job_of_another_database").is_dir()  # type: ignore[union-attr]  # it is a path
    assert not (place / "weights" / job_id).exists()
