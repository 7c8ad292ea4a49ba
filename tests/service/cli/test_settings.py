"""Settings that the commands of an operator refuse, and the database that `migrate` prepares."""

from __future__ import annotations

import json
import pwd
import sys
from pathlib import Path

import pytest

from service.cli.operating.process_commands import places_in_words
from service.settings import Settings
from service.store.migrate import current_revision, why_not_migrated
from service.store.session import Database
from tests.support.read_only_disk import run_with_read_only_disk
from tests.support.service.commands import run


def test_migrate_prepares_a_database(empty_database_url: str) -> None:
    result = run("migrate", "--database-url", empty_database_url)
    assert result.exit_code == 0, result.output
    assert "is at revision" in result.stdout
    told = json.loads(run("migrate", "--database-url", empty_database_url, "--json").stdout)
    database = Database(empty_database_url)
    assert why_not_migrated(database) is None
    assert told == {"database_url": repr(database.engine.url), "revision": current_revision(database)}
    database.close()


def test_serve_says_where_the_database_the_checkpoints_and_the_logs_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = Settings(data_dir=Path("data"))
    assert places_in_words(here) == f"database, checkpoints and logs in {tmp_path / 'data'}"
    elsewhere = here.model_copy(
        update={"database_url": "postgresql+psycopg://u:secret@db/x", "checkpoint_directory": "s3://bucket/mine"}
    )
    assert places_in_words(elsewhere) == (
        f"logs in {tmp_path / 'data'}; the database that its settings name; checkpoints in s3://bucket/mine"
    )


def test_migrate_of_an_unreachable_database_is_one_line_without_its_password() -> None:
    result = run("migrate", "--database-url", "postgresql+psycopg://u:secret@127.0.0.1:1/x")
    assert result.exit_code == 1
    assert "cannot use the database" in result.stderr
    assert "secret" not in result.stderr


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("LEASE_SECONDS", "-1", "'-1'"),
        ("LEASE_SECONDS", "inf", "'inf'"),  # no date is so far away
        ("POLL_SECONDS", "inf", "'inf'"),
        ("THIN_AFTER_DAYS", "inf", "'inf'"),
        ("REQUESTS_PER_SECOND", "inf", "'inf'"),
        ("DEVICE_HOUR_PRICES", "2.5 EUR", "'2.5 EUR'"),
        ("DEVICE_HOUR_PRICES", '{"gpu": "dear"}', "'dear'"),
        ("ALLOWED_HOSTS", "https://tuner.example.org", "'https://tuner.example.org'"),
    ],
)
def test_an_impossible_setting_of_the_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, shown: str
) -> None:
    monkeypatch.setenv(f"SHAMPOO_TUNER_{name}", value)
    result = run("migrate")
    assert result.exit_code == 1
    assert f"(SHAMPOO_TUNER_{name}): " in result.stderr
    assert result.stderr.endswith(f", got {shown}\n")


def test_a_directory_that_is_set_to_nothing_is_not_the_one_that_the_process_is_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHAMPOO_TUNER_DATA_DIR", "")
    monkeypatch.setenv("SHAMPOO_TUNER_TRACKER_DIRECTORY", "")
    settings = Settings()
    assert settings.data_dir.is_absolute()
    assert settings.tracker_place == settings.data_dir / "trackers"


@pytest.fixture
def without_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who is a number alone, as in a container, or of a cron job without HOME."""

    def no_entry(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    for name in ("HOME", "XDG_DATA_HOME", "SHAMPOO_TUNER_DATA_ROOTS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("without_home")
@pytest.mark.parametrize("command", ["serve", "demo", "doctor", "migrate"])
def test_without_a_home_the_data_directory_must_be_named(command: str) -> None:
    result = run(command)
    assert (result.exit_code, result.stderr) == (
        1,
        "shampoo-tuner: there is no home for the data directory: --data-dir or SHAMPOO_TUNER_DATA_DIR names another, "
        "and so does HOME\n",
    )


@pytest.mark.usefixtures("without_home")
def test_without_a_home_trials_read_the_services_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Settings(data_dir=tmp_path / "data").data_directories.roots == (str(tmp_path),)


@pytest.mark.parametrize("name", ["DATA_DIR", "DATA_ROOTS", "CHECKPOINT_DIRECTORY", "TRACKER_DIRECTORY"])
def test_the_home_of_nobody_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"SHAMPOO_TUNER_{name}", "~nobody-of-this-name/x")
    result = run("worker")
    assert result.exit_code == 1
    assert result.stderr == (
        f"shampoo-tuner: {name.lower()} (SHAMPOO_TUNER_{name}): Value error, the home in '~nobody-of-this-name/x' is "
        "not known, got '~nobody-of-this-name/x'\n"
    )


def test_the_data_directory_may_be_in_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "SHAMPOO_TUNER_DATA_DIR", "~/tuner"
    )  # of a unit of systemd, or a compose file: no shell expands it
    assert Settings().data_dir == Path.home() / "tuner"


@pytest.mark.parametrize("uri", ["s4://key:hidden@bucket/x", "s3://key:hidden@bucket/x"])
def test_a_place_for_checkpoints_that_cannot_be_is_named_without_its_secrets(
    monkeypatch: pytest.MonkeyPatch, uri: str
) -> None:
    monkeypatch.setenv("SHAMPOO_TUNER_CHECKPOINT_DIRECTORY", uri)
    result = run("worker")
    assert result.exit_code == 1
    assert "checkpoint_directory (SHAMPOO_TUNER_CHECKPOINT_DIRECTORY): " in result.stderr
    assert f"got '{uri[:5]}***@bucket/x'" in result.stderr
    assert "hidden" not in result.output


@pytest.mark.parametrize("command", ["migrate", "worker"])
@pytest.mark.parametrize(
    ("database_url", "message"),
    [
        ("mysql://u:secret@h/x", "must be sqlite:///... or postgresql+psycopg://..., got mysql://..."),
        ("u:secret@h", "must be sqlite:///... or postgresql+psycopg://..., got no URL"),
    ],
)
def test_an_impossible_database_is_one_line(command: str, database_url: str, message: str) -> None:
    result = run(command, "--database-url", database_url)
    assert result.exit_code == 1
    assert message in result.stderr
    assert "secret" not in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["a?b", "a%20b", "a #b"])
def test_the_database_is_in_its_data_directory_whatever_that_is_called(name: str, tmp_path: Path) -> None:
    directory = tmp_path / name
    assert run("migrate", "--data-dir", str(directory)).exit_code == 0
    file = Settings(data_dir=directory).database_files[0]
    assert [*tmp_path.iterdir()] == [directory]
    assert file.is_file()
    assert file.parent == directory


def test_a_file_that_cannot_be_made_is_one_line() -> None:
    result = run("migrate", "--database-url", "sqlite:////dev/null/x.sqlite3")
    assert (result.exit_code, result.stderr) == (1, "shampoo-tuner: cannot make /dev/null: File exists\n")


def test_a_worker_refuses_a_database_without_tables(empty_database_url: str) -> None:
    result = run("worker", "--database-url", empty_database_url)
    assert result.exit_code == 1
    assert "run `shampoo-tuner migrate`" in result.stderr


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("DATA_DIR", "data directory /dev/null/x: Not a directory; --data-dir or SHAMPOO_TUNER_DATA_DIR"),
        ("CHECKPOINT_DIRECTORY", "checkpoint directory /dev/null/x: Not a directory; SHAMPOO_TUNER_CHECK"),
    ],
)
def test_a_worker_names_the_directory_that_cannot_be_made(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, said: str
) -> None:
    monkeypatch.setenv("SHAMPOO_TUNER_DATA_DIR", str(tmp_path))
    monkeypatch.setenv(f"SHAMPOO_TUNER_{variable}", "/dev/null/x")
    result = run("worker", "--database-url", sqlite_database.url)
    assert result.exit_code == 1
    assert f"cannot make the {said}" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.processes
def test_a_worker_names_the_directory_that_cannot_be_written_to(sqlite_database: Database, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = [sys.executable, "-m", "service", "worker", "--data-dir", str(disk)]
    ended = run_with_read_only_disk(disk, [*command, "--database-url", sqlite_database.url])
    assert ended.returncode == 1
    assert ended.stderr == (
        f"shampoo-tuner: cannot write to the data directory {disk}: Read-only file system; "
        "--data-dir or SHAMPOO_TUNER_DATA_DIR names another\n"
    )


def test_the_databases_password_is_that_of_a_secret_and_no_process_is_handed_it(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("p@ss/ word\n")
    settings = Settings(database_url="postgresql+psycopg://tuner@db:5433/x?a=b", database_password_file=secret)
    assert settings.resolved_database_url == "postgresql+psycopg://tuner:p%40ss%2F%20word@db:5433/x?a=b"
    assert "word" not in str(settings.to_environment().values()).replace("password", "")
    url = tmp_path / "url"
    url.write_text("postgresql+psycopg://tuner@db/y\n")
    both = Settings(database_url_file=url, database_password_file=secret)
    assert both.resolved_database_url == "postgresql+psycopg://tuner:p%40ss%2F%20word@db/y"


@pytest.mark.parametrize(
    ("url", "password", "message"),
    [
        ("postgresql+psycopg://u@h/x", None, "cannot be read: No such file or directory"),
        ("postgresql+psycopg://u@h/x", "\n", "/secret' is empty: write the secret into it"),
        ("postgresql+psycopg://u:hidden@h/x", "other", "must name a user, without a password"),
        ("sqlite:///x", "other", "must name a user, without a password"),
    ],
)
def test_a_secret_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, password: str | None, message: str
) -> None:
    secret = tmp_path / "secret"
    if password is not None:
        secret.write_text(password)
    monkeypatch.setenv("SHAMPOO_TUNER_DATABASE_PASSWORD_FILE", str(secret))
    result = run("migrate", "--database-url", url)
    assert result.exit_code == 1
    assert message in result.stderr
    assert "database_password_file (SHAMPOO_TUNER_DATABASE_PASSWORD_FILE)" in result.stderr
    assert "hidden" not in result.output


def test_a_database_is_not_named_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "url").write_text("sqlite:///x")
    monkeypatch.setenv("SHAMPOO_TUNER_DATABASE_URL_FILE", str(tmp_path / "url"))
    result = run("migrate", "--database-url", "sqlite:///y")
    assert result.exit_code == 1
    assert "database_url is given as well" in result.stderr
