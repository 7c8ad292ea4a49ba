"""Commands of whoever runs the service, on its database: tokens, projects with their quotas, the audit trail."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from service.access.caller import Scope
from service.cli.asking import AsJson, answer, say, say_json, say_json_list
from service.cli.operating.here import DatabaseUrl, DataDir, own_database
from service.cli.operating.shared_options import with_shared_options
from service.domain import DEFAULT_PROJECT
from service.inert import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    from service.access.projects import Quotas
    from service.store.session import Database

_DURATION = re.compile(r"(?P<count>[0-9]{1,6})(?P<unit>[mhdw])")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_SIZE = re.compile(r"(?P<count>[0-9]+(?:\.[0-9]+)?)(?P<unit>[kMGTP]?)B?")
_POWERS = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5}
NO_LIMIT = "none"

Number = TypeVar("Number", int, float)

tokens = typer.Typer(help="Makes, lists and revokes tokens, in the database itself.", no_args_is_help=True)
projects = typer.Typer(help="Makes projects and sets their quotas, in the database itself.", no_args_is_help=True)
app = typer.Typer()
app.add_typer(tokens, name="token")
app.add_typer(projects, name="project")


@dataclass(frozen=True, slots=True)
class Here:
    """The options that say which database a command works on."""

    data_dir: DataDir = None
    database_url: DatabaseUrl = None

    def database(self) -> AbstractContextManager[Database]:
        """Opens the database that the options name, as `own_database` does."""
        return own_database(self.data_dir, self.database_url)


@dataclass(frozen=True, slots=True)
class QuotaOptions:
    """The options that say what a project may take; None: not given."""

    running_jobs: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Most jobs that run at once; others wait. `none`: no limit.")
    ] = None
    queued_jobs: Annotated[
        str | None,
        typer.Option(metavar="NUMBER", help="Most jobs that wait at once; others are refused. `none`: no limit."),
    ] = None
    device_hours: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Device-hours of all its trials, ever. `none`: no limit.")
    ] = None
    stored_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Room for checkpoints and logs, e.g. 500GB. `none`: no limit.")
    ] = None

    def read(self) -> tuple[Quotas, tuple[str, ...]]:
        """The quotas, and the names of those that were given."""
        from service.access.projects import QUOTAS, Quotas

        given = (self.running_jobs, self.queued_jobs, self.device_hours, self.stored_bytes)
        quotas = Quotas(
            max_running_jobs=_number("--running-jobs", self.running_jobs, int),
            max_queued_jobs=_number("--queued-jobs", self.queued_jobs, int),
            max_device_hours=_number("--device-hours", self.device_hours, float),
            max_stored_bytes=_number("--stored-bytes", self.stored_bytes, _bytes),
        )
        return quotas, tuple(field for field, text in zip(QUOTAS, given, strict=True) if text is not None)


@tokens.command("create")
@with_shared_options
def create_token(
    name: Annotated[str, typer.Argument(help="Name of the token, shown in jobs and in the audit trail.")],
    scope: Annotated[list[Scope], typer.Option(help="A scope of the token. Repeatable.")],
    project: Annotated[str, typer.Option(help="The project that the token belongs to.")] = DEFAULT_PROJECT,
    expires: Annotated[str, typer.Option(help="Time until it ends: 30m, 12h, 90d, 4w or `never`.")] = "90d",
    as_json: AsJson = False,
    *,
    here: Here,
) -> None:
    """Makes a token and prints it, this once: the database keeps a digest of it."""
    from service.access import tokens as access
    from service.access.audit import record_command
    from service.store.repositories import TokenRepository

    lifetime = None if expires == "never" else _duration(expires)
    with here.database() as database, database.writing() as session:
        now = database.now()
        expires_at = None if lifetime is None else now + lifetime
        text = access.create_token(session, name, project=project, scopes=set(scope), expires_at=expires_at, now=now)
        record_command(session, "create_token", f"{name} ({text.prefix})", now=now)
        made = TokenRepository(session).find(text.prefix)
    assert made is not None
    if as_json:
        from service.api.schemas.access import TokenCreated

        say_json(TokenCreated.made(made, text, now))
        return
    typer.echo(str(text))
    until = "never expires" if expires_at is None else f"expires at {_moment(expires_at)}"
    say(f"Keep it: it is shown this once. It {until}; `shampoo-tuner token revoke {name}` ends it.", err=True)


@tokens.command("generate")
def generate_token(as_json: AsJson = False) -> None:
    """Prints the text of a new token and stores nothing: for the file that SHAMPOO_TUNER_ADMIN_TOKEN_FILE names."""
    from service.access.tokens import new_token_text

    text = str(new_token_text())
    answer({"token": text}, text, as_json=as_json)


@tokens.command("list")
@with_shared_options
def list_tokens(here: Here, as_json: AsJson = False) -> None:
    """Lists all tokens, revoked and expired ones too, without their secrets."""
    from service.access.token_state import state_of
    from service.store.repositories import TokenRepository

    with here.database() as database, database.reading() as session:
        now = database.now()
        found = TokenRepository(session).all()
    if as_json:
        from service.api.schemas.access import TokenRead

        say_json_list(TokenRead.of(token, now) for token in found)
        return
    rows = []
    for token in found:
        used, until = _moment(token.last_used_at), "never" if token.expires_at is None else _moment(token.expires_at)
        rows.append(
            [token.prefix, token.name, token.project, " ".join(token.scopes), state_of(token, now), until, used]
        )
    _print_table(["prefix", "name", "project", "scopes", "state", "expires", "last used"], rows, nothing="no tokens")


@tokens.command("revoke")
@with_shared_options
def revoke_token(
    token: Annotated[str, typer.Argument(help="Its name, or its prefix.")],
    here: Here,
    as_json: AsJson = False,
) -> None:
    """Revokes a token: within seconds its requests are refused, and pages that logged in with it, too."""
    from service.access import tokens as access
    from service.access.audit import record_command
    from service.api.schemas.access import TokenRead

    with here.database() as database, database.writing() as session:
        now = database.now()
        ended = access.revoke_token(session, token, now=now)
        record_command(session, "revoke_token", f"{ended.name} ({ended.prefix})", now=now)
    answer(TokenRead.of(ended, now), f"token {ended.name} ({ended.prefix}) is revoked", as_json=as_json)


@projects.command("create")
@with_shared_options
def create_project(
    name: Annotated[str, typer.Argument(help="Small letters, digits, _ and -.")],
    quotas: QuotaOptions,
    here: Here,
    as_json: AsJson = False,
) -> None:
    """Makes a project; tokens and their jobs can belong to it from then on."""
    from service.access import projects as access
    from service.access.audit import record_command
    from service.api.schemas.access import ProjectRead
    from service.store.repositories import ProjectRepository

    limits, _ = quotas.read()
    with here.database() as database, database.writing() as session:
        now = database.now()
        made = access.create_project(session, name, limits, now=now)
        record_command(session, "create_project", name, now=now)
        read = ProjectRead.of(made, ProjectRepository(session).usage(name))
    answer(read, f"project {name} is made", as_json=as_json)


@projects.command("set")
@with_shared_options
def set_quotas(
    name: Annotated[str, typer.Argument(help="The project.")],
    quotas: QuotaOptions,
    here: Here,
    as_json: AsJson = False,
) -> None:
    """Sets quotas of a project; what is left out stays."""
    from service.access import projects as access
    from service.access.audit import record_command
    from service.api.schemas.access import ProjectRead
    from service.store.repositories import ProjectRepository

    limits, fields = quotas.read()
    if not fields:
        raise typer.BadParameter("give at least one quota", param_hint="NAME")
    with here.database() as database, database.writing() as session:
        now = database.now()
        changed = access.change_project(session, name, limits, fields=fields)
        record_command(session, "set_project", name, now=now)
        read = ProjectRead.of(changed, ProjectRepository(session).usage(name))
    words = f"project {name}: {', '.join(f'{field} {getattr(limits, field)}' for field in fields)}"
    answer(read, words, as_json=as_json)


@projects.command("list")
@with_shared_options
def list_projects(here: Here, as_json: AsJson = False) -> None:
    """Lists the projects with their quotas, and how much of each is used."""
    from service.store.repositories import ProjectRepository

    with here.database() as database, database.reading() as session:
        repository = ProjectRepository(session)
        found = [(project, repository.usage(project.name)) for project in repository.all()]
    if as_json:
        from service.api.schemas.access import ProjectRead

        say_json_list(ProjectRead.of(project, usage) for project, usage in found)
        return
    rows = [
        [
            project.name,
            _of(usage.running_jobs, project.max_running_jobs),
            _of(usage.queued_jobs, project.max_queued_jobs),
            _of(round(usage.device_hours, 2), project.max_device_hours),
            _of(usage.stored_bytes, project.max_stored_bytes, _size),
        ]
        for project, usage in found
    ]
    _print_table(
        ["project", "running jobs", "queued jobs", "device-hours", "stored bytes"], rows, nothing="no projects"
    )


@app.command()
@with_shared_options
def audit(
    project: Annotated[str | None, typer.Option(help="Only what actors of this project did.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only what this token did, by its name.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many.")] = 50,
    as_json: AsJson = False,
    *,
    here: Here,
) -> None:
    """Lists the audit trail: who did what, to what, and when; newest first."""
    from service.store.repositories import AuditRepository

    with here.database() as database, database.reading() as session:
        found = AuditRepository(session).page(project=project, actor=actor, limit=limit)
    if as_json:
        from service.api.schemas.access import AuditRead

        say_json_list(AuditRead.model_validate(entry) for entry in found)
        return
    rows = [
        [_moment(entry.at), entry.actor or "-", entry.project, entry.action, entry.target, entry.address or "-"]
        for entry in found
    ]
    _print_table(["at", "actor", "project", "action", "target", "from"], rows, nothing="nothing was done")


def _duration(text: str) -> timedelta:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise typer.BadParameter(
            f"must be a time such as 30m, 12h, 90d or 4w, or never, got {text!r}", param_hint="--expires"
        )
    return int(found["count"]) * _UNITS[found["unit"]]


def _number(option: str, text: str | None, read: Callable[[str], Number]) -> Number | None:
    if text is None or text == NO_LIMIT:
        return None
    try:
        value = read(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a number nor {NO_LIMIT!r}", param_hint=option) from None
    if not 0 <= value < 2**63:  # nor NaN
        raise typer.BadParameter(f"must be from 0 to {2**63 - 1}, got {text!r}", param_hint=option)
    return value


def _bytes(text: str) -> int:
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return round(float(found["count"]) * float(1000 ** _POWERS[found["unit"]]))


def _of(used: float, limit: float | None, written: Callable[[float], str] = "{:g}".format) -> str:
    return written(used) if limit is None else f"{written(used)} of {written(limit)}"


def _size(num_bytes: float) -> str:
    """A size as `--stored-bytes` takes it, to four figures."""
    unit = min(int(math.log10(max(num_bytes, 1))) // 3, len(_POWERS) - 1)
    return f"{num_bytes / 1000**unit:.4g}{list(_POWERS)[unit]}B"


def _moment(moment: datetime | None) -> str:
    return "-" if moment is None else moment.strftime("%Y-%m-%d %H:%M UTC")


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, nothing: str) -> None:
    """Columns of equal width; the terminal obeys nothing in them."""
    if not rows:
        say(nothing, err=True)
        return
    lines = [list(header), *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
