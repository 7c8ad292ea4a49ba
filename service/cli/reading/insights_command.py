"""The command that shows what the trials of a job tell of its hyperparameters: `insights`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from service.cli.asking import DEFAULT_URL, AsJson, JobId, Token, Url, client_at, say, say_json, say_prose

if TYPE_CHECKING:
    from rich.console import Console

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
            say_prose(too_few_words(side.num_trials))
        else:
            _show_parameters(console, side)
        if side.early_late_correlation:
            say_prose(early_late_words(side.early_late_correlation))
        if side.prices:
            say_prose(prices_words(side))
        for setting in side.prices:
            say_prose(f"- {price_words(setting, found.metric)}")
        say("")


def _show_parameters(console: Console, side: SideInsights) -> None:
    """Prints a line for each parameter of which something is known, and of the others why nothing is."""
    from service.cli import terminal
    from service.evidence.in_words.insight_words import NONE_STANDS_OUT, importance_words, range_words, trend_words

    if not any(one.is_beyond_chance for one in side.parameters):
        say_prose(NONE_STANDS_OUT)
    told = [one for one in side.parameters if one.is_beyond_chance or range_words(one)]
    if told:
        table = terminal.listing("parameter", "importance", "direction", "safe range", whole=("parameter",))
        for one in told:
            table.add_row(one.label, importance_words(one.importance), trend_words(one), range_words(one))
        terminal.show(console, table)
    others = [one for one in side.parameters if one not in told]
    for why in dict.fromkeys(importance_words(one.importance) for one in others):
        say_prose(f"{why}: {', '.join(one.label for one in others if importance_words(one.importance) == why)}")
