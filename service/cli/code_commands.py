"""Commands about code that comes with jobs: list, remove. `submit --code` sends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.asking import DEFAULT_URL, AsJson, Token, Url, answer, client_at, say, say_json_list
from service.evidence.in_words.wording import counted

if TYPE_CHECKING:
    from service.client import Client

SHORT = 12
"""Digits of a hash that lists show: few enough to type, and hardly ever those of two."""

app = typer.Typer(help="Lists and removes code that came with jobs.", no_args_is_help=True)


@app.command("list")
def list_(url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Lists the code that your project has, with the jobs that name it."""
    with client_at(url, token) as client:
        if as_json:
            say_json_list(client.code())
            return
        is_empty = True
        for each in client.code():
            is_empty = False
            jobs = "1 job" if each.num_jobs == 1 else f"{each.num_jobs or 'no'} jobs"
            owner = f"  by {each.owner}" if each.owner else ""
            used = f"{each.used_at:%Y-%m-%d}"
            files = counted(each.num_files, "file")
            say(f"{each.sha256[:SHORT]}  {files}, {each.num_bytes} bytes  {jobs}  used {used}{owner}")
        if is_empty:
            say("no code", err=True)


@app.command()
def remove(
    code: Annotated[str, typer.Argument(metavar="SHA256", help="Its hash, or the first characters of it.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Removes code that no job names. Without it, code is removed a day after the last job that names it."""
    with client_at(url, token) as client:
        sha256 = _whole(client, code)
        client.remove_code(sha256)
        answer({"sha256": sha256}, f"code {sha256[:SHORT]} is removed", as_json=as_json)


def _whole(client: Client, beginning: str) -> str:
    """The hash that begins so. Raises: typer.BadParameter: several do."""
    found = [each.sha256 for each in client.code() if each.sha256.startswith(beginning)]
    if len(found) > 1:
        raise typer.BadParameter(f"{len(found)} begin with {beginning!r}: give more of it", param_hint="SHA256")
    if not found:
        raise typer.BadParameter(
            f"none begins with {beginning!r}; `code list` shows what there is", param_hint="SHA256"
        )
    return found[0]
