"""A worker around its runs: their environment, their crashes, and what runs of a killed worker left."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from service.domain import JobState
from service.scheduler import worker
from service.scheduler.abandoned import end_abandoned_runs, remove_abandoned_directories
from service.scheduler.cluster import process_tree
from service.scheduler.cluster.run_environment import DIRECTORY_VARIABLE, run_environment
from service.scheduler.run_process import describe_crash, make_directory
from service.scheduler.worker import keep_beating
from service.settings import Settings
from service.store.repositories import WorkerRepository
from service.store.session import VERSION_TABLE, Database
from tests.support.service.service_process import lasting
from tests.support.waiting import PATIENCE_SECONDS, wait_until


@pytest.mark.processes
def test_the_worker_loads_neither_torch_nor_ray() -> None:
    code = "import sys, service.scheduler.worker; print(sorted({'torch', 'ray', 'optuna', 'numpy'} & set(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


def test_a_run_reads_the_same_settings_from_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = "s3://bucket/a%20b?region=eu-west-1"
    settings = Settings(data_dir=tmp_path / "with space", checkpoint_directory=uri, lease_seconds=7.5, poll_seconds=0.1)
    for name, value in run_environment(settings, tmp_path).items():
        monkeypatch.setenv(name, value)
    assert Settings() == settings


@pytest.mark.processes
def test_a_run_imports_ray_where_python_is_to_leave_out_docstrings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    environment = {**os.environ, **run_environment(Settings(), tmp_path)}
    subprocess.run([sys.executable, "-c", "import ray.data"], env=environment, check=True)


def test_a_run_has_a_home_where_its_user_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray is not imported without one."""
    assert "HOME" not in run_environment(Settings(), tmp_path)
    settings = Settings(data_dir=tmp_path)

    def no_entry(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    monkeypatch.delenv("HOME")
    assert run_environment(settings, tmp_path)["HOME"] == str(tmp_path)


def test_a_local_cluster_gets_a_token_of_its_own_and_another_keeps_its_own_ways(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    local = Settings()
    assert Settings().cluster_address is None
    assert run_environment(local, tmp_path)["RAY_AUTH_TOKEN"] != run_environment(local, tmp_path)["RAY_AUTH_TOKEN"]
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert Settings().cluster_address == "10.0.0.1:6379"
    assert Settings(ray_address="10.0.0.2:6379").cluster_address == "10.0.0.2:6379"
    assert "RAY_AUTH_MODE" not in run_environment(local, tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", "local")  # Ray's word
    assert Settings().cluster_address is None
    assert "RAY_AUTH_TOKEN" in run_environment(local, tmp_path)


def test_a_run_that_has_no_place_for_its_sockets_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc")  # nobody makes a directory there, root neither
    with pytest.raises(OSError, match=r"\(TMPDIR may name another directory, with a path of at most 18 bytes\)"):
        make_directory()


def test_ranks_of_a_local_cluster_meet_on_the_loopback_of_macos_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    assert "GLOO_SOCKET_IFNAME" not in run_environment(Settings(), tmp_path)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert run_environment(Settings(), tmp_path)["GLOO_SOCKET_IFNAME"] == "lo0"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "en0")
    assert run_environment(Settings(), tmp_path)["GLOO_SOCKET_IFNAME"] == "en0"
    on_cluster = Settings(ray_address="10.0.0.2:6379")
    assert "GLOO_SOCKET_IFNAME" not in run_environment(on_cluster, tmp_path)


@pytest.mark.parametrize(("status", "how"), [(1, "exit status 1"), (-9, "killed by SIGKILL")])
def test_a_crash_is_described_by_how_it_came_and_the_end_of_this_runs_log(
    tmp_path: Path, status: int, how: str
) -> None:
    log = tmp_path / "job.log"
    log.write_text("an earlier run\n")
    start = log.stat().st_size
    assert describe_crash(status, log, start) == how
    with log.open("a") as file:
        file.write("x" * 5000 + "\n\x1b[31mValueError:\x1b[0m no such\x07 thing\n")
    described = describe_crash(status, log, start)
    assert described.startswith(f"{how}; its log ends: xxx")
    assert described.endswith("x\nValueError: no such\\x07 thing")
    assert len(described) < 2100


@pytest.mark.parametrize(("largest_pid", "max_bytes"), [(4_194_303, 107), (99_998, 103)], ids=["linux", "macos"])
@pytest.mark.parametrize("num_bytes", [18, 19, 20, 40])
def test_rays_sockets_have_room_below_the_directory_of_a_run(
    num_bytes: int, largest_pid: int, max_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="t") as short:
        parent = Path(short) / ("x" * (num_bytes - len(short) - 1))
        parent.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(parent))
        monkeypatch.setattr(os, "getpid", lambda: largest_pid)
        directory = make_directory()
    socket_path = directory / f"session_2026-11-30_22-36-47_375100_{largest_pid}" / "sockets" / "plasma_store"
    with suppress(FileNotFoundError):
        directory.rmdir()
    assert len(str(socket_path)) <= max_bytes
    assert (directory.parent == parent) == (num_bytes <= 18)


@pytest.mark.processes
def test_files_of_a_killed_worker_are_removed_and_those_of_a_living_one_stay() -> None:
    dead = psutil.Popen([sys.executable, "-c", ""])
    dead.wait()
    ours = make_directory()  # as if of an earlier worker, that had the same process id in the same container
    left, living = (ours.with_name(f"shampoo-{pid}-abcdefgh") for pid in (dead.pid, os.getppid()))
    left.mkdir()
    living.mkdir()
    try:
        remove_abandoned_directories()
        assert living.exists()
        assert not left.exists()
        assert not ours.exists()
    finally:
        living.rmdir()


@pytest.mark.services
def test_processes_of_a_killed_worker_are_ended_and_those_of_a_living_one_stay() -> None:
    dead = psutil.Popen([sys.executable, "-c", ""])
    dead.wait()
    sleep = [sys.executable, "-c", "import time; time.sleep(1e6)"]
    left, living = (
        subprocess.Popen(sleep, env={**os.environ, DIRECTORY_VARIABLE: f"/tmp/shampoo-{pid}-abcdefgh"})
        for pid in (dead.pid, os.getppid())
    )
    try:
        end_abandoned_runs()
        left.wait(PATIENCE_SECONDS)
        assert living.poll() is None
    finally:
        for process in (left, living):
            process.kill()
            process.wait()


@pytest.mark.processes
def test_descendants_are_ended_even_when_their_parents_are_gone_and_others_are_spared(tmp_path: Path) -> None:
    script = tmp_path / "tree.py"
    script.write_text(
        """
import subprocess, sys
from service.scheduler.cluster import process_tree
from trainers.processes.orphans import adopt_orphans

adopt_orphans()
sleep = [sys.executable, "-c", "import os, time; os.closerange(0, 3); time.sleep(1e6)"]
spared = subprocess.Popen(sleep)
others = process_tree.descendants()
# A child that starts a grandchild in a session of its own, tells of it, and dies.
orphan = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], start_new_session=True).pid)"
pid = subprocess.run([sys.executable, "-c", orphan, *sleep], capture_output=True, text=True, check=True).stdout
found = {process.pid for process in process_tree.descendants()}
process_tree.end_descendants(spare=others)
left = {process.pid for process in process_tree.descendants()}
print(int(pid) in found, left == {spared.pid})
spared.kill()
"""
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(process_tree.__file__).parents[3])}
    ran = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
        env=environment,
    )
    assert ran.stdout.split() == ["True", "True"]


def test_heartbeats_that_the_database_refuses_are_told_once_and_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database(f"sqlite:///{tmp_path / 'without-tables.sqlite3'}")
    database.make_file()
    gone = threading.Event()
    beating = threading.Thread(
        target=keep_beating, args=(database, "worker_1", Settings(data_dir=tmp_path, lease_seconds=0.1), gone)
    )
    beating.start()
    wait_until(lambda: bool(caplog.messages), "a heartbeat that failed")
    time.sleep(0.2)  # some more of them
    gone.set()
    beating.join()
    database.close()
    assert caplog.messages == ["the heartbeat failed: no such table: workers"]
    assert [record.exc_info for record in caplog.records] == [None]


def test_a_worker_that_gives_the_database_up_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def give_up(*_settings: Settings, **_stop: threading.Event) -> None:
        raise OperationalError("INSERT", None, Exception("the server is gone"))

    monkeypatch.setattr(worker, "run_worker", give_up)
    monkeypatch.setattr(worker, "set_up_logs", lambda _format: None)
    monkeypatch.setattr(signal, "signal", lambda _number, _handler: None)
    with pytest.raises(SystemExit) as ended:
        worker.main()
    assert ended.value.code == 1
    assert caplog.messages == ["the worker ends: the database is out of reach: the server is gone"]
    assert caplog.records[0].exc_info is None


@pytest.mark.services
def test_a_worker_ends_once_a_newer_version_has_migrated_its_database(
    migrated_sqlite_file: Path, tmp_path: Path
) -> None:
    with lasting(migrated_sqlite_file, tmp_path) as service:

        def has_begun() -> bool:
            with service.database.reading() as session:
                return WorkerRepository(session).last_heartbeat() is not None

        service.wait_for("the worker", has_begun)
        with service.database.writing() as session:
            session.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
        job = service.submit({"workload": {"name": "digits-mlp"}, "budget": {"num_trials": 2}})
        assert service.workers[0].wait(PATIENCE_SECONDS) == 1
        assert "the worker ends: the database is of a newer version of shampoo-tuner: revision 9999" in service.logs()
        assert service.job(job).state is JobState.QUEUED
