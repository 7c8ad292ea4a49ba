"""Checkpoints over HTTP: listed, and copied whole or from where a copy broke off; nothing else is."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from service.api.routers.of_trials import checkpoints
from service.api.schemas.common import Readiness
from service.checkpoint_files import TrialCheckpoints
from service.cli.commands import app
from service.client import ApiError, AsyncClient, Client
from service.client.downloads import DamagedDownload
from service.store.session import Database
from tests.support import event_loop
from tests.support.s3_server import S3Server
from tests.support.service.live import running
from tests.support.service.scenarios import begin_trial, claimed_job
from tests.support.waiting import PATIENCE_SECONDS
from trainers.storage import place_of
from trainers.storage.object_store import ObjectStore

TENSORS = os.urandom(3 * 2**20)
SHA256 = hashlib.sha256(TENSORS).hexdigest()
FILE = "rank-00000.safetensors"


def manifest(*, world_size: int = 1) -> bytes:
    files = {f"rank-{rank:05d}.safetensors": SHA256 for rank in range(world_size)}
    return json.dumps({"manifest": {"step": 40, "world_size": world_size, "files": files}, "sha256": ""}).encode()


def store(directory: Path, *, world_size: int = 1) -> Path:
    directory.mkdir(parents=True)
    (directory / "manifest.json").write_bytes(manifest(world_size=world_size))
    (directory / FILE).write_bytes(TENSORS)
    return directory


@pytest.fixture
def trial(sqlite_database: Database) -> str:
    """The id of a job with a running trial."""
    lease = claimed_job(sqlite_database)
    begin_trial(sqlite_database, lease, 0)
    return lease.job_id


@pytest.fixture
def address(sqlite_database: Database, tmp_path: Path) -> Iterator[str]:
    with running(sqlite_database, checkpoint_directory=str(tmp_path / "checkpoints")) as address:
        yield address


@pytest.fixture
def http(address: str, trial: str) -> Iterator[httpx.Client]:
    url = f"{address}/v1/jobs/{trial}/trials/0/checkpoints"
    with httpx.Client(base_url=url, trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as client:
        yield client


@pytest.fixture
def place(tmp_path: Path, trial: str) -> Path:
    """Of the trial's checkpoints."""
    return tmp_path / "checkpoints" / trial / "0"


def test_a_place_that_is_removed_while_it_is_listed_has_no_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = store(tmp_path / "0" / "step-00000040").parent
    scandir = os.scandir

    def removed_first(path: Path) -> object:
        monkeypatch.setattr(os, "scandir", scandir)  # from Python 3.13 on, rmtree gives its own file descriptors
        shutil.rmtree(path, ignore_errors=True)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", removed_first)
    assert TrialCheckpoints(place).newest_first() == []


def test_checkpoints_are_listed_and_whole_or_not(http: httpx.Client, place: Path) -> None:
    assert http.get(str(http.base_url).removesuffix("/")).json() == {"items": []}
    store(place / "step-00000040")
    store(place / "step-00000080", world_size=2)
    (store(place / "step-00000020") / "manifest.json").write_text('{"manifest": {')
    store(place / ".partial-step-00000090-00")
    (place / "step-00000100").symlink_to("/etc")
    found = http.get(str(http.base_url).removesuffix("/")).json()["items"]
    assert [(each["step"], each["world_size"], each["is_whole"]) for each in found] == [
        (80, 2, False),
        (40, 1, True),
        (20, None, False),
    ]
    whole = found[1]
    assert whole["num_bytes"] == len(TENSORS) + len(manifest())
    assert whole["files"][1] == {"name": FILE, "num_bytes": len(TENSORS), "sha256": SHA256}


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-", 0, len(TENSORS)),
        ("bytes=5-9", 5, 10),
        ("bytes=-7", len(TENSORS) - 7, len(TENSORS)),
        (f"bytes=10-{10**15}", 10, len(TENSORS)),
    ],
)
def test_a_range_of_a_file_is_sent(http: httpx.Client, place: Path, asked: str, start: int, end: int) -> None:
    store(place / "step-00000040")
    answer = http.get(f"/step-00000040/{FILE}", headers={"Range": asked})
    assert answer.content == TENSORS[start:end]
    is_part = (start, end) != (0, len(TENSORS))
    assert answer.status_code == (206 if is_part else 200)
    assert answer.headers.get("Content-Range") == (f"bytes {start}-{end - 1}/{len(TENSORS)}" if is_part else None)


def test_whole_files_and_ranges_that_are_none(http: httpx.Client, place: Path) -> None:
    store(place / "step-00000040")
    url = f"/step-00000040/{FILE}"
    answer = http.get(url)
    assert (answer.status_code, answer.content) == (200, TENSORS)
    assert "Content-Range" not in answer.headers
    for asked in ("bytes=1-2,5-6", "lines=1-", "bytes=9-5", "bytes=-"):
        assert http.get(url, headers={"Range": asked}).status_code == 200
    assert http.get(url, headers={"Range": "bytes=1-2", "If-Range": '"another"'}).status_code == 200
    same = http.get(url, headers={"Range": "bytes=1-2", "If-Range": answer.headers["ETag"]})
    assert (same.status_code, same.content) == (206, TENSORS[1:3])
    beyond = http.get(url, headers={"Range": f"bytes={len(TENSORS)}-"})
    assert (beyond.status_code, beyond.headers["Content-Range"]) == (416, f"bytes */{len(TENSORS)}")
    head = http.head(url)
    assert (head.status_code, head.headers["Content-Length"]) == (200, str(len(TENSORS)))


@pytest.mark.parametrize(
    "path",
    [
        "/step-00000040/none",
        "/step-00000041/manifest.json",
        "/step-00000040/..%2f..%2f..%2fsecret",
        "/..%2f..%2fsecret/manifest.json",
        "/%2e%2e/secret",
        "/step-00000040/link",
        "/step-00000050/secret",
        "/step-00000040/directory",
        "/.partial-step-00000090-00/manifest.json",
    ],
)
def test_nothing_else_is_sent(http: httpx.Client, place: Path, path: str) -> None:
    inside = store(place / "step-00000040")
    secret = place.parent.parent / "secret"
    secret.write_text("secret")
    (inside / "link").symlink_to(secret)
    (inside / "directory").mkdir()
    (place / "step-00000050").symlink_to(secret.parent)
    store(place / ".partial-step-00000090-00")
    answer = http.get(path)
    assert answer.status_code == 404
    assert "secret" not in answer.text.replace(path, "") or "no " in answer.text


def test_the_client_copies_a_checkpoint_and_checks_it(
    address: str, place: Path, trial: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(place / "step-00000040")
    target = tmp_path / "copy"
    with Client(address) as client:
        [checkpoint] = client.checkpoints(trial, 0)
        client.download_checkpoint(trial, 0, checkpoint, target)
        assert (target / FILE).read_bytes() == TENSORS
        assert sorted(path.name for path in target.iterdir()) == ["manifest.json", FILE]
        asked = ["checkpoints", trial, "0", "--url", address, "--download", str(tmp_path / "here")]
        told = CliRunner().invoke(app, asked).stdout
        assert told.startswith(f"step-00000040  {checkpoint.num_bytes} bytes  1 rank\ncopied to")
        assert (tmp_path / "here" / "step-00000040" / FILE).read_bytes() == TENSORS
        as_json = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
        assert as_json == {**checkpoint.model_dump(mode="json"), "path": str(tmp_path / "here" / "step-00000040")}
        (place / "step-00000040" / FILE).write_bytes(TENSORS[::-1])
        with pytest.raises(DamagedDownload):
            client.download_checkpoint(trial, 0, checkpoint, tmp_path / "damaged")
        monkeypatch.setattr(checkpoints, "MAX_DOWNLOADS", 0)
        with pytest.raises(ApiError, match="0 files are sent at once"):
            client.download_checkpoint(trial, 0, checkpoint, tmp_path / "busy")
    assert [path.name for path in (tmp_path / "damaged").iterdir()] == ["manifest.json"]


def test_the_client_that_awaits_copies_a_checkpoint_too(address: str, trial: str, place: Path, tmp_path: Path) -> None:
    store(place / "step-00000040")
    target = tmp_path / "copy"

    async def copy() -> None:
        async with AsyncClient(address) as client:
            [checkpoint] = await client.checkpoints(trial, 0)
            await client.download_checkpoint(trial, 0, checkpoint, target)
            assert (await client.read(Readiness, "GET", "/readyz")).num_workers == 0
            (place / "step-00000040" / FILE).write_bytes(TENSORS[::-1])
            with pytest.raises(DamagedDownload):
                await client.download_checkpoint(trial, 0, checkpoint, tmp_path / "damaged")

    event_loop.run(copy())
    assert (target / FILE).read_bytes() == TENSORS
    assert sorted(path.name for path in target.iterdir()) == ["manifest.json", FILE]
    assert [path.name for path in (tmp_path / "damaged").iterdir()] == ["manifest.json"]


@pytest.mark.parametrize("kind", ["file", "s3"])
def test_checkpoints_in_a_store(kind: str, tmp_path: Path, s3: S3Server) -> None:
    text = s3.uri(tmp_path.name) if kind == "s3" else tmp_path.as_uri()
    uri = place_of(f"{text}") / "7"
    assert not isinstance(uri, Path)
    name = f"step-00000040-{'ab' * 8}"
    writing, reading = ObjectStore(uri), TrialCheckpoints(uri)
    writing.write(f"{name}/{FILE}", lambda: [TENSORS])
    [unfinished] = reading.newest_first()
    assert (unfinished.step, unfinished.is_whole) == (40, False)
    writing.write(f"{name}/manifest.json", lambda: [manifest()])
    [whole] = reading.newest_first()
    assert (whole.is_whole, whole.num_bytes) == (True, len(TENSORS) + len(manifest()))
    opened = reading.open(name, FILE)
    with opened.content as file:
        file.seek(100)
        assert file.read(50) == TENSORS[100:150]
    with pytest.raises(FileNotFoundError):
        reading.open(name, "none")
