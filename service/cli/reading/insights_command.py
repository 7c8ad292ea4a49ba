"""The command that shows what the trials of a job tell of its hyperparameters: `insights`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from service.cli.asking import DEFAULT_URL, AsJson, JobId, Token, Url, client_at, say, say_json

if TYPE_CHECKING:
    from rich.table import Table

    from service.evidence.insights import SideInsights

app = typer.Typer()


@app.command()
def insights(job: JobId, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Shows what mattered in a job: which hyperparameters, in which direction, the ranges that are safe, and
    what cheaper settings would lose."""
    from service.cli import terminal
    from service.evidence.in_words.insight_words import (
        early_late_words,
        price_words,
        prices_words,
        side_words,
        too_few_words,
    )

    with client_at(url, token) as client:
        found = client.insights(job)
    if as_json:
        say_json(found)
        return
    console = terminal.new_console()
    for side in found.sides:
        say(f"{side.side}: {side_words(side)}")
        if side.has_few_trials:
            say(too_few_words(side.num_trials))
        else:
            terminal.show(console, _table(side))
        if side.early_late_correlation:
            say(early_late_words(side.early_late_correlation))
        if side.prices:
            say(prices_words(side))
        for setting in side.prices:
            say(f"- {price_words(setting, found.metric)}")
        say("")


def _table(side: SideInsights) -> Table:
    from rich.table import Table
    from rich.text import Text

    from service.evidence.in_words.insight_words import importance_words, range_words, trend_words

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("parameter", "importance", "direction", "safe range"):
        table.add_column(column, overflow="fold")
    for one in side.parameters:
        cells = (one.label, importance_words(one.importance), trend_words(one), range_words(one))
        table.add_row(*(Text(cell) for cell in cells))
    return table
