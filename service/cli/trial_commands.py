"""Commands that look at one trial: what its ranks print, and its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.asking import (
    DEFAULT_URL,
    AsJson,
    JobId,
    Token,
    TrialNumber,
    Url,
    answer,
    client_at,
    say,
    say_json_line,
    say_json_list,
)
from service.evidence.in_words.wording import counted

if TYPE_CHECKING:
    from service.api.schemas.trials import OutputRead

app = typer.Typer()


@app.command()
def logs(
    job: JobId,
    trial: TrialNumber,
    rank: Annotated[int | None, typer.Option(min=0, help="Only lines of this rank.")] = None,
    contains: Annotated[str | None, typer.Option(help="Only lines that hold this text, in either case.")] = None,
    tail: Annotated[int | None, typer.Option(min=1, max=2000, help="Only this many lines, the last ones.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new lines until the trial ends.")
    ] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Shows the output of a trial's ranks: their standard error on standard error; with --json, a line for each
    piece."""
    asked: dict[str, Any] = {
        name: value for name, value in (("rank", rank), ("contains", contains), ("tail", tail)) if value is not None
    }
    with client_at(url, token) as client:
        chunks = client.follow_logs(job, trial, **asked) if follow else client.logs(job, trial, **asked)
        is_empty = True
        for chunk in chunks:
            is_empty = False
            if as_json:
                say_json_line(chunk)
            else:
                _show(chunk, names_rank=rank is None)
        if is_empty and not as_json:
            say(
                "nothing that was printed fits" if asked.keys() - {"tail"} else "its ranks have printed nothing",
                err=True,
            )


@app.command()
def checkpoints(
    job: JobId,
    trial: TrialNumber,
    download: Annotated[Path | None, typer.Option(help="Copy the newest whole one into this directory.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Lists the checkpoints of an unfinished trial, the newest first; with --download and --json, prints the one that
    was copied, and its path."""
    with client_at(url, token) as client:
        found = client.checkpoints(job, trial)
        if as_json and download is None:
            say_json_list(found)
        for each in () if as_json else found:
            ranks = "damaged" if each.world_size is None else counted(each.world_size, "rank")
            say(f"{each.name}  {each.num_bytes} bytes  {ranks}{'' if each.is_whole else '  not whole'}")
        if download is None:
            if not found and not as_json:
                say("no checkpoints: they are kept while a trial goes on, or can", err=True)
            return
        whole = next((each for each in found if each.is_whole), None)
        if whole is None:
            say(f"trial {trial} of job {job} has no whole checkpoint now", err=True)
            raise typer.Exit(1)
        path = download / whole.name
        client.download_checkpoint(job, trial, whole, path)
        answer({**whole.model_dump(mode="json"), "path": str(path)}, f"copied to {path}", as_json=as_json)


def _show(chunk: OutputRead, *, names_rank: bool) -> None:
    to_error = chunk.stream == "stderr"
    prefix = f"[rank {chunk.rank}] " if names_rank else ""
    if chunk.omitted_bytes:
        say(f"{prefix}... ({chunk.omitted_bytes} bytes were not kept)", err=to_error)
    for line in chunk.lines:
        say(f"{prefix}{line}", err=to_error)
