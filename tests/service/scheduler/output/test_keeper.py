"""Output of ranks, from their files to SQL: bounded, in order, once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from service.domain import JobState, OutputStream, TrialState
from service.scheduler.output.files import SourceName, directory_of, local_parent
from service.scheduler.output.keeper import OutputKeeper, secrets_of
from service.scheduler.output.on_this_machine import LocalOutput, keep_what_was_left
from service.settings import Settings
from service.store.repositories import JobRepository, TrialRepository
from service.store.repositories.of_trials.outputs import CHUNK_BYTES, OutputRepository, StoredChunk
from service.store.session import Database
from service.use_cases.keeping.retention import thin
from service.use_cases.leases import note_disk_use
from service.use_cases.trials.rank_output import Printed, keep_output
from tests.support.service.scenarios import NOW, begin_trial, claimed_job

NOBODY = 2**22 + 1


def keeper(database: Database, job_id: str, directory: Path, *, bytes_per_rank: int = 10_000) -> OutputKeeper:
    return OutputKeeper(database, job_id, LocalOutput(directory), bytes_per_rank=bytes_per_rank)


def write(directory: Path, content: bytes, *, trial: int = 0, rank: int = 0, begun: int = 1) -> None:
    with (directory / str(SourceName(trial, rank, begun, NOBODY, OutputStream.STDERR))).open("ab") as file:
        file.write(content)


def stored(database: Database, job_id: str, number: int = 0, *, rank: int | None = None) -> list[StoredChunk]:
    with database.reading() as session:
        trial = TrialRepository(session).get(job_id, number)
        return OutputRepository(session).after(trial.id, rank=rank, limit=1000)


def test_output_is_kept_by_trial_and_rank_and_its_files_go_when_all_is_kept(database: Database, tmp_path: Path) -> None:
    job_id = (lease := claimed_job(database)).job_id
    for number in (0, 1):
        begin_trial(database, lease, number)
    keeping = keeper(database, job_id, tmp_path)
    write(tmp_path, b"one\ntwo\n")
    assert keeping.look()
    write(tmp_path, b"three\n")
    write(tmp_path, b"of another\n", trial=1, rank=2)
    write(tmp_path, b"of none\n", trial=9)
    keeping.keep_all()
    assert [(chunk.rank, chunk.stream, chunk.lines) for chunk in stored(database, job_id)] == [
        (0, OutputStream.STDERR, ["one", "two"]),
        (0, OutputStream.STDERR, ["three"]),
    ]
    assert [(chunk.rank, chunk.lines) for chunk in stored(database, job_id, 1)] == [(2, ["of another"])]
    assert stored(database, job_id, 1, rank=0) == []
    assert not tmp_path.exists()


def test_a_keeper_goes_on_where_one_that_was_killed_had_come_to(database: Database, tmp_path: Path) -> None:
    job_id = (lease := claimed_job(database)).job_id
    begin_trial(database, lease, 0)
    write(tmp_path, b"one\n")
    keeper(database, job_id, tmp_path).look()
    write(tmp_path, b"two\n")
    keeper(database, job_id, tmp_path).keep_all()
    assert [chunk.lines for chunk in stored(database, job_id)] == [["one"], ["two"]]


def test_of_a_talkative_rank_the_beginning_and_the_end_are_kept_and_the_gap_is_told(
    database: Database, tmp_path: Path
) -> None:
    job_id = (lease := claimed_job(database)).job_id
    begin_trial(database, lease, 0)
    keeping = keeper(database, job_id, tmp_path, bytes_per_rank=4000)
    size = len("line 000\n")
    for index in range(100):
        write(tmp_path, b"line %03d\n" % index)
        keeping.look()
    found = stored(database, job_id)
    numbers = [int(line.removeprefix("line ")) for chunk in found for line in chunk.lines]
    assert numbers[0] == 0
    assert numbers[-1] == 99
    gaps = [(before, after) for before, after in pairwise(numbers) if after != before + 1]
    assert len(gaps) == 1
    missing = gaps[0][1] - gaps[0][0] - 1
    # The newline between two chunks is not stored.
    assert [chunk.omitted_bytes for chunk in found if chunk.omitted_bytes] == [missing * (size - 1)]
    kept_bytes = sum(len(chunk.content) + CHUNK_BYTES for chunk in found)
    assert 3000 < kept_bytes <= 5000
    with database.writing() as session:
        note_disk_use(session, job_id, 7)
        assert JobRepository(session).get(job_id).disk_bytes == 7 + kept_bytes


def test_output_goes_with_the_history_of_an_ended_job(database: Database) -> None:
    job_id = (lease := claimed_job(database)).job_id
    begin_trial(database, lease, 0)
    printed = Printed(0, 0, OutputStream.STDOUT, "file", 3, 0, ["one"])
    with database.writing() as session:
        keep_output(session, job_id, [printed], bytes_per_rank=10_000, now=NOW)
        job = JobRepository(session).get(job_id)
        job.state = JobState.FAILED
        TrialRepository(session).get(job_id, 0).state = TrialState.CANCELLED
    number, is_done = -1, False
    while not is_done:
        with database.writing() as session:
            step = thin(session, job_id, after_number=number, now=NOW)
        number, is_done = step.after_number, step.is_done
    assert stored(database, job_id) == []


@pytest.mark.parametrize(
    ("name", "value", "hidden"),
    [
        ("WANDB_API_KEY", "0123456789", ["0123456789"]),
        ("HF_TOKEN", "hf_abcdefgh", ["hf_abcdefgh"]),
        ("SHAMPOO_TUNER_DATABASE_URL", "postgresql+psycopg://me:secret-word@db/x", ["secret-word"]),
        ("DB_PASSWORD", "short", []),
        ("PATH", "/usr/bin:/bin", []),
        ("SOME_URL", "http://user@[broken", []),
    ],
)
def test_values_of_secret_variables_are_hidden(name: str, value: str, hidden: list[str]) -> None:
    assert secrets_of({name: value}) == hidden


def test_a_worker_keeps_what_a_killed_one_left_of_jobs_that_nobody_runs(
    sqlite_database: Database, tmp_path: Path
) -> None:
    database = sqlite_database
    running, paused = claimed_job(database), claimed_job(database)
    settings = Settings(data_dir=tmp_path)
    for lease in (running, paused):
        begin_trial(database, lease, 0)
        directory = directory_of(str(local_parent(tmp_path)), lease.job_id)
        directory.mkdir(parents=True)
        write(directory, b"last words")
    with database.writing() as session:
        JobRepository(session).get(paused.job_id).state = JobState.PAUSED
    (local_parent(tmp_path) / "job_of_another_database").mkdir()
    keep_what_was_left(settings, database)
    assert [chunk.lines for chunk in stored(database, paused.job_id)] == [["last words"]]
    assert stored(database, running.job_id) == []
    assert {path.name for path in local_parent(tmp_path).iterdir()} == {running.job_id, "job_of_another_database"}
