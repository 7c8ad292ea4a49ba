"""The commands of whoever runs the service, on its database, and the refusal to serve others without tokens."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest

from service.access.caller import Scope
from service.access.tokens import FILE_TOKEN, BadToken, KnownToken, look_up, new_token_text, read_token_text
from service.client import Client, UnusableToken
from service.server.serve import CannotServe, close_doors
from service.settings import Settings
from service.store.models import Token
from service.store.repositories import TokenRepository
from service.store.session import Database
from tests.support.service.callers import asking, give_token
from tests.support.service.commands import run
from tests.support.service.databases.full_database import full_disk
from tests.support.service.scenarios import submit


@pytest.fixture
def here(sqlite_database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """The database that commands find in their environment."""
    monkeypatch.setenv("SHAMPOO_TUNER_DATABASE_URL", sqlite_database.url)
    return sqlite_database


def _look_up(database: Database, text: str) -> KnownToken | None:
    parts = read_token_text(text)
    assert parts is not None, text
    with database.reading() as session:
        found = look_up(session, parts.prefix)
    assert found is None or found.is_of(parts)
    return found


@pytest.mark.slow
def test_a_token_is_made_shown_once_and_revoked(here: Database) -> None:
    project = json.loads(run("project", "create", "vision", "--queued-jobs", "4", "--json").stdout)
    assert (project["name"], project["max_queued_jobs"], project["max_running_jobs"]) == ("vision", 4, None)
    made = run("token", "create", "ada", "--scope", "submit", "--scope", "code", "--project", "vision")
    assert re.fullmatch(r"shampoo_[0-9a-f]{12}_[0-9a-f]{64}\n", made.stdout)
    assert "shown this once" in made.stderr
    token = _look_up(here, made.stdout.strip())
    assert token is not None
    caller = token.caller
    assert (caller.name, caller.project, caller.scopes) == (
        "ada",
        "vision",
        frozenset({Scope.SUBMIT, Scope.CODE}),
    )
    secret = made.stdout.strip().rpartition("_")[2]
    with here.reading() as session:
        [row] = TokenRepository(session).all()
        assert not [column for column in Token.__table__.columns if secret in str(getattr(row, column.name))]
    assert row.expires_at is not None
    assert (row.expires_at - row.created_at).days == 90
    listed = run("token", "list").stdout
    assert row.prefix in listed
    assert "valid" in listed
    assert secret not in listed
    [as_json] = json.loads(run("token", "list", "--json").stdout)["items"]
    assert (as_json["prefix"], as_json["state"], as_json["scopes"]) == (row.prefix, "valid", ["code", "submit"])
    projects = json.loads(run("project", "list", "--json").stdout)["items"]
    assert [(each["name"], each["usage"]["queued_jobs"]) for each in projects] == [("default", 0), ("vision", 0)]
    assert [each["action"] for each in json.loads(run("audit", "--json", "--limit", "1").stdout)["items"]] == [
        "create_token"
    ]
    twice = run("token", "create", "ada", "--scope", "read")
    assert twice.exit_code == 1
    assert "token revoke ada" in twice.stderr
    ended = json.loads(run("token", "revoke", "ada", "--json").stdout)
    assert (ended["prefix"], ended["state"]) == (row.prefix, "revoked")
    assert _look_up(here, made.stdout.strip()) is None
    assert "revoked" in run("token", "list").stdout
    again = json.loads(run("token", "create", "ada", "--scope", "read", "--expires", "never", "--json").stdout)
    assert (again["name"], again["state"], again["expires_at"]) == ("ada", "valid", None)
    assert _look_up(here, again["token"]) is not None
    trail = run("audit").stdout
    assert re.findall(r"\w+_token|create_project", trail) == [
        "create_token",
        "revoke_token",
        "create_token",
        "create_project",
    ]
    assert "shell:" in trail


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["token", "create", "a b", "--scope", "read"], "name"),
        (["token", "create", "ada", "--scope", "write"], "'write' is not one of"),
        (["token", "create", "ada"], "--scope"),
        (["token", "create", "ada", "--scope", "read", "--expires", "soon"], "90d"),
        (["token", "create", "ada", "--scope", "read", "--expires", "0d"], "must lie in the future, got 2"),
        (["token", "create", "ada", "--scope", "read", "--project", "x"], "`shampoo-tuner project create x` makes it"),
        (["token", "create", "ada", "--scope", "read", "--expires", "soon"], "must be a time such as 30m"),
        (["token", "revoke", "ada"], "no token is called 'ada'"),
        (["project", "set", "default"], "at least one quota"),
        (["project", "set", "default", "--running-jobs", "many"], "neither a number nor 'none'"),
        (["project", "set", "default", "--device-hours", "nan"], "must be from 0 to"),
        (["project", "set", "default", "--stored-bytes", "-1"], "neither a number"),
        (["project", "create", "default"], "there is a project"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_is_said(arguments: list[str], said: str) -> None:
    answer = run(*arguments)
    assert answer.exit_code in (1, 2)
    assert said in " ".join(re.sub(r"[│╭╰─╮╯]", " ", answer.stderr).split())


def test_quotas_are_set_and_listed(here: Database) -> None:
    submit(here)
    assert run("project", "set", "default", "--queued-jobs", "3", "--stored-bytes", "1.5kB").exit_code == 0
    assert run("project", "set", "default", "--device-hours", "2").exit_code == 0
    assert re.search(r"default\s+0\s+1 of 3\s+0 of 2\s+0B of 1.5kB\n", run("project", "list").stdout)
    project = json.loads(run("project", "set", "default", "--queued-jobs", "none", "--json").stdout)
    assert (project["max_queued_jobs"], project["max_device_hours"], project["usage"]["queued_jobs"]) == (None, 2.0, 1)
    assert re.search(r"default\s+0\s+1\s+0 of 2", run("project", "list").stdout)


def test_clients_send_the_token_of_their_environment(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = give_token(sqlite_database, "ada", Scope.READ)
    job = submit(sqlite_database)
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    with asking(sqlite_database) as asked:
        monkeypatch.setenv("SHAMPOO_TUNER_URL", asked.url)
        refused = run("jobs")
        assert refused.exit_code == 1
        assert "shampoo-tuner token create" in refused.stderr
        assert job in run("jobs", "--token", token).stdout
        denied = run("cancel", job, "--token", token)
        assert "needs a token with the scope 'submit'" in denied.stderr
        monkeypatch.setenv("SHAMPOO_TUNER_TOKEN_FILE", str(file))
        file.chmod(0o640)
        assert f"chmod 600 {file}" in run("jobs").stderr
        file.chmod(0o600)
        assert job in run("jobs").stdout
        monkeypatch.setenv("SHAMPOO_TUNER_TOKEN", token)
        file.unlink()
        with Client(asked.url) as client:
            assert [found.id for found in client.jobs()] == [job]
        with Client(asked.url, token="shampoo_wrong") as client, pytest.raises(Exception, match="not known here"):
            client.job(job)
        with pytest.raises(UnusableToken):
            Client(asked.url, token="é")
        monkeypatch.delenv("SHAMPOO_TUNER_TOKEN")
        with pytest.raises(UnusableToken, match="No such file"):
            Client(asked.url)


OTHERS: list[dict[str, object]] = [{"host": "0.0.0.0"}, {"host": "10.0.0.7"}, {"allowed_hosts": "tuner.example.org"}]


def test_others_are_not_served_until_somebody_has_a_token(sqlite_database: Database) -> None:
    own = Settings(), Settings(access="open", host="0.0.0.0")  # type: ignore[arg-type] # as the environment has it
    closed = [Settings(**each) for each in (*OTHERS, {"access": "tokens"})]  # type: ignore[arg-type] # likewise
    for settings in own:
        close_doors(settings, sqlite_database)
    for settings in closed:
        with pytest.raises(CannotServe, match="`shampoo-tuner token create NAME --scope admin` makes the first one"):
            close_doors(settings, sqlite_database)
    give_token(sqlite_database, "ada", Scope.ADMIN)
    for settings in closed:
        close_doors(settings, sqlite_database)


def test_the_first_token_comes_from_a_file(sqlite_database: Database, tmp_path: Path) -> None:
    file = tmp_path / "admin_token"
    settings = Settings(host="0.0.0.0", admin_token_file=file)
    with pytest.raises(CannotServe, match="cannot read"):
        close_doors(settings, sqlite_database)
    file.write_text("hunter2")
    with pytest.raises(CannotServe, match="holds no token; `shampoo-tuner token generate`"):
        close_doors(settings, sqlite_database)
    texts = [run("token", "generate").stdout for _ in range(2)]
    for text in texts:
        file.write_text(text)
        for _ in range(2):  # as at each start
            close_doors(settings, sqlite_database)
        token = _look_up(sqlite_database, text.strip())
        assert token is not None
        assert (token.caller.name, token.caller.scopes) == (FILE_TOKEN, frozenset(Scope))
    assert _look_up(sqlite_database, texts[0].strip()) is None
    prefix, other = texts[1].split("_")[1], new_token_text().secret
    file.write_text(f"shampoo_{prefix}_{other}")
    with pytest.raises(BadToken):
        close_doors(settings, sqlite_database)


@pytest.mark.usefixtures("here")
def test_optunas_dashboard_shows_jobs_to_this_machine_alone() -> None:
    refused = run("optuna-dashboard", "--host", "0.0.0.0")
    assert refused.exit_code == 1
    assert "only this machine may reach it" in refused.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_optunas_dashboard_shows_nothing_where_tokens_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("token", "create", "ada", "--scope", "read").exit_code == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:  # else it would go on for ever
        command = ("optuna-dashboard", "--port", str(taken.getsockname()[1]))
        refused = run(*command)
        monkeypatch.setenv("SHAMPOO_TUNER_ACCESS", "open")
        allowed = run(*command)
    assert (refused.exit_code, allowed.exit_code) == (1, 1)
    assert "all users of this machine would see all projects" in refused.stderr
    assert "Address already in use" in allowed.stderr


@pytest.mark.parametrize("command", ["token create ada --scope read", "project create vision"])
def test_a_database_that_takes_no_more_is_one_line(here: Database, command: str) -> None:
    with full_disk(here):
        result = run(*command.split())
    assert result.exit_code == 1
    assert result.stderr == f"shampoo-tuner: cannot use the database {here.engine.url!r}: disk I/O error\n"
