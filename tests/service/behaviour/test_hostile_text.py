"""Text of others, such as a job's name, is shown by the command line and not obeyed by the terminal."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest
import yaml
from rich.console import Console

from service.cli import terminal
from service.cli.reading import watching
from service.client import Client
from service.inert import inert, one_line
from service.store.repositories import JobRepository
from service.store.session import Database
from service.use_cases.run import finish_job
from tests.support.service.commands import run
from tests.support.service.live import finished_job, running
from tests.support.service.scenarios import NOW, claimed_job, run_trial

HOSTILE = "a\x1b]0;owned\x07b\x1b[2J[red]x[link=http://evil]:smile:\x9b31m\u202egpj\x7f\r\nsucceeded"
SHOWN = r"a\x1b]0;owned\x07b\x1b[2J[red]x[link=http://evil]:smile:\x9b31m\u202egpj\x7f\r\nsucceeded"


@pytest.fixture
def url(sqlite_database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with running(sqlite_database) as url:
        monkeypatch.setenv("SHAMPOO_TUNER_URL", url)
        monkeypatch.setenv("COLUMNS", "400")
        yield url


def said(*arguments: str) -> str:
    """Everything that a command prints."""
    return run(*arguments).output


def assert_inert(text: str) -> None:
    assert [character for character in text if not (character.isprintable() or character == "\n")] == []


def call_as_before(database: Database, job_id: str, name: str) -> None:
    """Gives a job a name of before names were held to one line."""
    with database.writing() as session:
        JobRepository(session).get(job_id).name = name


def console(*, is_terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=is_terminal, width=400)


def printed(on: Console) -> str:
    assert isinstance(on.file, io.StringIO)
    return on.file.getvalue()


def test_each_character_that_a_terminal_might_obey_is_an_escape() -> None:
    assert one_line(HOSTILE) == SHOWN
    assert inert("a\n\tb\u2028\U000e0001") == "a\n\\tb\\u2028\\U000e0001"
    assert inert("naïve 漢字 😀 ±") == "naïve 漢字 😀 ±"


@pytest.mark.usefixtures("url")
def test_names_and_failures_are_inert_in_every_command(sqlite_database: Database) -> None:
    job_id = finished_job(sqlite_database)
    failed = claimed_job(sqlite_database).job_id
    for job in (job_id, failed):
        call_as_before(sqlite_database, job, HOSTILE)
    listed = said("jobs")
    assert_inert(listed)
    assert listed.count(SHOWN) == 2
    config = said("recommend", "--job", job_id, "--trial", "1")
    assert_inert(config)
    assert r"\x1b]0;owned\x07b\x1b[2J[red]x" in config
    compile(config, "snippet", "exec")
    assert_inert(said("priority", HOSTILE, "1"))  # the answer repeats what was asked for


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_watched_job_obeys_nobody(url: str, sqlite_database: Database, is_terminal: bool) -> None:
    lease = claimed_job(sqlite_database)
    run_trial(sqlite_database, lease, 0, 0.5)
    with sqlite_database.writing() as session:
        finish_job(session, lease, failure=HOSTILE, now=NOW)
    call_as_before(sqlite_database, lease.job_id, HOSTILE)
    on = console(is_terminal=is_terminal)
    with Client(url) as client:
        watching.watch(client, lease.job_id, on)
    shown = printed(on)
    assert SHOWN in shown
    if is_terminal:  # which Rich moves about in, with sequences of its own
        assert f"{SHOWN}  {lease.job_id}" in shown
        for sequence in ("\x1b]0;", "\x07", "\x1b[2J", "\x9b", "\u202e", "\x7f", "\nsucceeded"):
            assert sequence not in shown
    else:
        assert_inert(shown)
        assert shown.count("\n") == 1
        assert_inert(said("watch", lease.job_id))


@pytest.mark.usefixtures("url")
def test_show_prints_the_lines_of_a_failure_and_no_other_line_is_made_by_it(sqlite_database: Database) -> None:
    lease = claimed_job(sqlite_database)
    with sqlite_database.writing() as session:
        finish_job(session, lease, failure=f"it died; its log ends: one\n{HOSTILE}", now=NOW)
    shown = said("show", lease.job_id)
    assert_inert(shown)
    lines = shown.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("failure"))
    column = lines[first].index("it died")
    of_text = ["it died; its log ends: one", *SHOWN.split(r"\n")]
    assert lines[first + 1 : first + 3] == [f"{' ' * column}{line}" for line in of_text[1:]]


def test_what_the_demo_says_is_text() -> None:
    on = console(is_terminal=True)
    terminal.say(on, HOSTILE)
    # It says Python, too, which has many lines.
    assert printed(on).splitlines() == [SHOWN.removesuffix(r"\nsucceeded"), "succeeded"]


@pytest.mark.usefixtures("url")
def test_a_recommendation_is_inert_and_reads_back_the_same(sqlite_database: Database) -> None:
    options = {"label_smoothing": HOSTILE, "dropout": "naïve"}  # which only the trial's ranks would refuse
    lease = claimed_job(sqlite_database, workload={"name": "digits-mlp", "options": options})
    run_trial(sqlite_database, lease, 0, 0.5)
    with sqlite_database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)
    for form in ("json", "yaml"):
        text = said("recommend", "--job", lease.job_id, "--format", form)
        assert_inert(text)
        read = json.loads(text) if form == "json" else yaml.safe_load(text)
        assert read["workload_options"] == options
    python = said("recommend", "--job", lease.job_id)
    assert_inert(python)
    assert r"label_smoothing='a\x1b]0;owned" in python
    compile(python, "snippet", "exec")
