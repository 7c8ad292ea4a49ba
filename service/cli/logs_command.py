"""The command that shows what the ranks of a trial print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.asking import DEFAULT_URL, AsJson, JobId, Token, TrialNumber, Url, client_at, say, say_json_line

if TYPE_CHECKING:
    from service.api.schemas.output import OutputRead

app = typer.Typer()


@app.command()
def logs(
    job: JobId,
    trial: TrialNumber,
    rank: Annotated[int | None, typer.Option(min=0, help="Of this rank alone.")] = None,
    tail: Annotated[int | None, typer.Option(min=1, max=2000, help="Only so many lines, the last ones.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until the trial ends.")
    ] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Shows what the ranks of a trial printed, what they wrote to standard error on standard error; with --json, a
    line for each piece."""
    asked = {name: value for name, value in (("rank", rank), ("tail", tail)) if value is not None}
    with client_at(url, token) as client:
        chunks = client.follow_logs(job, trial, **asked) if follow else client.logs(job, trial, **asked)
        for chunk in chunks:
            if as_json:
                say_json_line(chunk)
            else:
                _show(chunk, names_rank=rank is None)


def _show(chunk: OutputRead, *, names_rank: bool) -> None:
    to_error = chunk.stream == "stderr"
    prefix = f"[rank {chunk.rank}] " if names_rank else ""
    if chunk.omitted_bytes:
        say(f"{prefix}... ({chunk.omitted_bytes} bytes were not kept)", err=to_error)
    for line in chunk.lines:
        say(f"{prefix}{line}", err=to_error)
