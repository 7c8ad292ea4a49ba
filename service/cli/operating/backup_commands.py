"""Commands for the embedded database: `backup` and `restore`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from service.cli.asking import AsJson, answer, say, say_json_content
from service.cli.operating.here import DatabaseUrl, DataDir, read_settings
from service.cli.writing import Overwrite, cleaning_up
from service.evidence.in_words.wording import counted

app = typer.Typer()


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(help="The file to write.")],
    overwrite: Overwrite = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Writes a copy of the embedded database, also while the service runs. Checkpoints are not in it."""
    from service.store.backup import back_up

    settings = read_settings(data_dir=data_dir, database_url=database_url)
    with cleaning_up():
        made = back_up(settings.resolved_database_url, file, overwrites=overwrite)
    if as_json:
        say_json_content({"path": str(file), **asdict(made)})
        return
    say(f"{file} holds {counted(made.num_jobs, 'job')}, {made.num_bytes:,} bytes, at revision {made.revision}, checked")
    say("checkpoints are not in it: trials that are unfinished in it begin anew where theirs are gone")


@app.command()
def restore(
    file: Annotated[Path, typer.Argument(help="What `backup` wrote.")],
    overwrite: Overwrite = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Makes a backup the embedded database, while the service is stopped."""
    from service.store.backup import restore as restore_file

    settings = read_settings(data_dir=data_dir, database_url=database_url)
    with cleaning_up():
        found = restore_file(settings.resolved_database_url, file, overwrites=overwrite)
    jobs = counted(found.num_jobs, "job")
    words = f"restored {jobs} at revision {found.revision}; `serve` or `migrate` brings them up to date"
    answer({"path": str(file), **asdict(found)}, words, as_json=as_json)
