"""Asking a service from the command line: its address, the job and trial in question, and the lines or the JSON that
answer."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Mapping
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.hosts import DEFAULT_URL, URL
from service.inert import inert, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pydantic import BaseModel

    from service.api.schemas.jobs import JobSubmitted
    from service.client import Client

__all__ = [
    "DEFAULT_URL",
    "AsJson",
    "JobId",
    "Token",
    "TrialNumber",
    "Url",
    "answer",
    "checking_job",
    "client_at",
    "inert_data",
    "may_be_submitted",
    "page_of",
    "say",
    "say_json",
    "say_json_content",
    "say_json_line",
    "say_json_list",
    "say_prose",
    "say_warnings",
    "say_where",
    "written_file",
]

TOLD_AFTER_SECONDS = 2.0
"""Time that a command waits for the check of a job without a word: most take less."""
TOLD_AGAIN_SECONDS = 30.0
"""Time after which it is told that the check goes on."""

OF_SERVICE = "The service that is asked"
"""The group of options that say which service is asked, and as whom: after those that are a command's own."""

Url = Annotated[str, typer.Option(envvar=URL, help="The service's address.", rich_help_panel=OF_SERVICE)]
Token = Annotated[
    str | None,
    typer.Option(
        help="Your token; better in SHAMPOO_TUNER_TOKEN, or in a file that SHAMPOO_TUNER_TOKEN_FILE names: other users "
        "of this machine see the options of a command.",
        show_default=False,
        rich_help_panel=OF_SERVICE,
    ),
]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="A job's id.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
TrialNumber = Annotated[int, typer.Argument(metavar="TRIAL", min=0, help="The trial's number.")]


def client_at(url: str, token: str | None = None) -> Client:
    """A client of the service at an address that a user gave.

    Args:
        token: None: that of the environment, if there is one.
    """
    from service.client import Client

    try:
        return Client(url, token=token, give_up_seconds=0.0)  # a person decides, and has the error at once
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--url") from error


@contextmanager
def checking_job(
    *, after_seconds: float = TOLD_AFTER_SECONDS, again_seconds: float = TOLD_AGAIN_SECONDS
) -> Iterator[None]:
    """Within, the service checks a job: whoever waits for long is told what for, on standard error, and again."""
    words = "the service checks the job: it builds the workload and its model, with the data that these read"
    began, ended = monotonic(), Event()

    def tell() -> None:
        if ended.wait(after_seconds):
            return
        say(f"{words} ...", err=True)
        while not ended.wait(again_seconds):
            say(f"still checking, for {monotonic() - began:.0f} s now ...", err=True)

    telling = Thread(target=tell, daemon=True)
    telling.start()
    try:
        yield
    finally:
        ended.set()
        telling.join()


@contextmanager
def may_be_submitted() -> Iterator[None]:
    """Within, a job is submitted: who waits for long is told what for, and who interrupts that, that the service may
    have it."""
    try:
        with checking_job():
            yield
    except KeyboardInterrupt:
        typer.echo(err=True)
        say("the service may have the job all the same, and run it: `shampoo-tuner jobs` tells", err=True)
        raise


def say_warnings(job: JobSubmitted) -> None:
    """Says on standard error what the service found to be wrong with a job that it took."""
    for line in job.warnings:
        say(f"warning: {line}", err=True)


def say_where(job: JobSubmitted, url: str) -> None:
    """Tells whoever sits before a terminal, on standard error, where a job can be followed."""
    if sys.stdout is None or not sys.stdout.isatty():
        return  # a program reads the id, and nobody asked for more
    elsewhere = "" if url == os.environ.get(URL, DEFAULT_URL) else f" --url {shlex.quote(url)}"
    say(f"its page: {page_of(job.id, url)}; `shampoo-tuner watch {job.id}{elsewhere}` follows it", err=True)


def page_of(job_id: str, url: str) -> str:
    """The address of a job's page."""
    return f"{url.rstrip('/')}/jobs/{job_id}"


def say(text: str, *, err: bool = False) -> None:
    """Prints one line; the terminal obeys nothing in it."""
    typer.echo(one_line(text), err=err)


def say_prose(text: str) -> None:
    """Prints a sentence or more: one line for a program, whole words a line in a terminal."""
    text = one_line(text)
    if sys.stdout.isatty():
        columns = shutil.get_terminal_size().columns
        text = textwrap.fill(text, columns, break_long_words=False, break_on_hyphens=False)
    typer.echo(text)


def answer(found: BaseModel | Mapping[str, object], words: str, *, as_json: bool) -> None:
    """Prints what came of a command: as JSON, or in one line of words.

    Args:
        found: what the API answered; or where there is no such answer, what is to be told, by the API's names.
    """
    if not as_json:
        say(words)
    elif isinstance(found, Mapping):
        say_json_content(dict(found))
    else:
        say_json(found)


def written_file(path: Path) -> dict[str, object]:
    """A description, for JSON, of a file that a command wrote."""
    return {"path": str(path), "num_bytes": path.stat().st_size}


def say_json(found: BaseModel) -> None:
    """Prints an answer as the API gives it."""
    say_json_content(_content(found))


def say_json_list(found: Iterable[BaseModel]) -> None:
    """Prints a list, from all its pages, as `{"items": [...]}`."""
    say_json_content({"items": [_content(one) for one in found]})


def say_json_line(found: BaseModel) -> None:
    """Prints one of several answers that come one after the other, each on a line of its own."""
    content = _content(found)
    typer.echo(inert_data(lambda readable: json.dumps(content, ensure_ascii=not readable)))


def inert_data(dump: Callable[[bool], str]) -> str:
    """Data as text that reads back the same from standard output. Where a character must be an escape, or has no place
    in the output's encoding, all that are not ASCII are, in the format's own way.

    Args:
        dump: gives the text; with False, in ASCII.
    """
    text = dump(True)
    if inert(text) == text and _is_writable(text):
        return text
    return dump(False).replace("\x7f", "\\u007f")  # which is ASCII, too


def _is_writable(text: str) -> bool:
    encoding = getattr(sys.stdout, "encoding", None)
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _content(found: BaseModel) -> Any:
    return found.model_dump(mode="json", by_alias=True)


def say_json_content(content: object) -> None:
    """Prints what JSON can say, over several lines."""
    typer.echo(inert_data(lambda readable: json.dumps(content, indent=2, ensure_ascii=not readable)))
