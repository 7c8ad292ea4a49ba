"""The command that checks an installation: `doctor`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.asking import DEFAULT_URL, Token, Url, client_at, say, say_json_content
from service.cli.operating.here import DatabaseUrl, DataDir, read_settings

if TYPE_CHECKING:
    from service.settings import Settings

EXTRAS = ("service", "studies", "trackers", "wandb", "vision", "text", "huggingface")
ASK_SECONDS = 60.0
"""Time for a process to import torch and name the GPU: on a busy machine the import alone can take half a minute."""

app = typer.Typer()


class PartHealth(StrEnum):
    """The health of a part: as it must be; not there, which may be meant so; or broken."""

    OK = "ok"
    ABSENT = "--"
    BROKEN = "BROKEN"


@dataclass(frozen=True, slots=True)
class CheckedPart:
    """A part that was looked at."""

    part: str
    health: PartHealth
    words: str


@app.command()
def doctor(
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print part, health and words of each as JSON.")] = False,
) -> None:
    """Checks this machine's installation and the service, a line for each part.

    A service that does not answer is broken only where you say where it is. Exit status 1: something is broken.
    """
    settings = read_settings(data_dir=data_dir, database_url=database_url)
    told = []
    for found in chain(findings(settings), [_api(url, token)]):
        told.append(found)
        if not as_json:
            say(f"{found.health:6}  {found.part:11}  {found.words}")
    if as_json:
        items = [{"part": each.part, "health": each.health.name.lower(), "words": each.words} for each in told]
        say_json_content({"items": items})
    if any(each.health is PartHealth.BROKEN for each in told):
        raise typer.Exit(1)


def findings(settings: Settings) -> Iterator[CheckedPart]:
    """Looks at one part after the other; changes nothing."""
    yield CheckedPart("python", PartHealth.OK, f"{sys.version.split()[0]} at {sys.executable}")
    yield _package("torch", absent=PartHealth.BROKEN, what="nothing can be trained")
    yield from (_extra(name) for name in EXTRAS)
    yield _data_directory(settings)
    yield from _database(settings)
    yield _package("ray", absent=PartHealth.ABSENT, what="this machine runs no workers")
    yield _gpu()


def _package(name: str, *, absent: PartHealth, what: str) -> CheckedPart:
    try:
        return CheckedPart(name, PartHealth.OK, metadata.version(name))
    except metadata.PackageNotFoundError:
        return CheckedPart(name, absent, f"is not installed: {what}")


def _extra(name: str) -> CheckedPart:
    from trainers.installation.extras import install_command, missing_of

    if missing := missing_of(name):
        return CheckedPart(
            name, PartHealth.ABSENT, f"extra, not installed (missing: {', '.join(missing)}): {install_command(name)}"
        )
    return CheckedPart(name, PartHealth.OK, "extra, installed")


def _data_directory(settings: Settings) -> CheckedPart:
    from service.monitoring.readiness import why_no_room
    from service.private_files import why_not_private

    directory = settings.data_dir
    if not directory.exists():
        return CheckedPart("data", PartHealth.ABSENT, f"{directory} is not there yet: `shampoo-tuner serve` makes it")
    for path in (directory, *settings.database_files):
        if (why_not := why_not_private(path)) is not None:
            return CheckedPart("data", PartHealth.BROKEN, why_not)
    if (no_room := why_no_room(settings, data_are_here=True)) is not None:
        return CheckedPart("data", PartHealth.BROKEN, no_room)
    free = shutil.disk_usage(directory).free
    return CheckedPart("data", PartHealth.OK, f"{directory} is its owner's alone, {free / 1e9:.1f} GB are free")


def _database(settings: Settings) -> Iterator[CheckedPart]:
    """The database and its migration, and whether a worker is alive, which the database knows."""
    from contextlib import closing

    from service.clock import utc_text
    from service.server.serve import open_database
    from service.store.migrate import current_revision, why_not_of_this_version
    from service.store.repositories import WorkerRepository
    from service.store.session import DATABASE_ERRORS
    from service.use_cases.keeping.unread import unread_jobs

    if settings.database_files and not any(Path(path).exists() for path in settings.database_files):
        yield CheckedPart("database", PartHealth.ABSENT, "is not there yet: `shampoo-tuner serve` makes it")
        return
    with closing(open_database(settings)) as database:
        try:
            revision = current_revision(database)
        except DATABASE_ERRORS as error:
            why = str(getattr(error, "orig", error)).strip()
            yield CheckedPart("database", PartHealth.BROKEN, f"{database.engine.url!r} is out of reach: {why}")
            return
        if why_not := why_not_of_this_version(revision):
            yield CheckedPart(
                "database", PartHealth.BROKEN, f"{database.engine.url!r}, at revision {revision}: {why_not}"
            )
            return
        yield CheckedPart(
            "database", PartHealth.OK, f"{database.engine.url!r} is at revision {revision}, as it must be"
        )
        now = database.now()
        with database.reading() as session:
            workers = WorkerRepository(session)
            alive, last = workers.alive_since(now - timedelta(seconds=settings.lease_seconds)), workers.last_heartbeat()
            unread = unread_jobs(session)
    for job_id, why in unread.items():
        words = f"{job_id} cannot be read, nor pages and lists that show it ({why}): `shampoo-tuner delete` removes it"
        yield CheckedPart("job", PartHealth.BROKEN, words)
    if alive:
        yield CheckedPart("worker", PartHealth.OK, f"{alive} alive")
    elif last is None:
        yield CheckedPart(
            "worker", PartHealth.ABSENT, "none has been started: `shampoo-tuner serve` or `worker` starts one"
        )
    else:
        yield CheckedPart("worker", PartHealth.ABSENT, f"none is alive; the last was heard of at {utc_text(last)}")


def _api(url: str, token: str | None) -> CheckedPart:
    """Asks the service that other commands ask whether it answers, for its version and for its workers."""
    from service.client import ApiError
    from service.errors import ServiceError
    from service.evidence.in_words.wording import counted
    from trainers.installation.distribution import version

    with client_at(url, token) as client:
        try:
            its = client.liveness().version
        except ServiceError as error:
            if url == DEFAULT_URL and not isinstance(error, ApiError):
                return CheckedPart("api", PartHealth.ABSENT, str(error))
            return CheckedPart("api", PartHealth.BROKEN, str(error))
        told = f"{url} answers: version {its}{'' if its == version() else f', and {version()} here'}"
        try:
            num_workers = client.readiness().num_workers
        except ServiceError as error:
            return CheckedPart("api", PartHealth.BROKEN, f"{told}; it is not ready: {error}")
    if not num_workers:
        return CheckedPart("api", PartHealth.ABSENT, f"{told}; no worker is alive")
    return CheckedPart("api", PartHealth.OK, f"{told}; {counted(num_workers, 'worker')} alive")


def _gpu() -> CheckedPart:
    """Asked of torch in a process of its own: the command line does without it."""
    if shutil.which("nvidia-smi") is None:
        return CheckedPart("gpu", PartHealth.ABSENT, "this machine has no driver of NVIDIA: trials train on the CPU")
    asked = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"
    try:
        answer = subprocess.run(
            [sys.executable, "-c", asked], capture_output=True, text=True, timeout=ASK_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return CheckedPart("gpu", PartHealth.BROKEN, f"torch did not answer in {ASK_SECONDS:.0f} s")
    count = answer.stdout.strip()
    if answer.returncode or count == "0":
        why = (answer.stderr.strip().splitlines() or ["this build of torch, or the driver, is not for it"])[-1]
        return CheckedPart("gpu", PartHealth.BROKEN, f"the driver is here, and torch sees no GPU: {why}")
    return CheckedPart("gpu", PartHealth.OK, f"torch sees {count}")
