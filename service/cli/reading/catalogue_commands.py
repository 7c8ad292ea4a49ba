"""Commands that show what a job can name: `workloads` and `spaces`."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.asking import DEFAULT_URL, AsJson, Token, Url, client_at, inert_data, say_json, say_json_list
from service.errors import ServiceError

app = typer.Typer()


@app.command()
def workloads(url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Lists the workloads that the service has; `init NAME` writes a job for one."""
    from service.cli import terminal

    with client_at(url, token) as client:
        found = client.workloads()
    if as_json:
        say_json_list(found)
        return
    table = terminal.listing("name", "objective", "steps", "batch", "title", numbers=("steps", "batch"))
    for one in found:
        cells = (one.default_objective, str(one.default_num_steps), str(one.default_batch_size), one.title)
        table.add_row(one.name, *cells)
    terminal.show(terminal.new_console(), table)


@app.command()
def spaces(
    name: Annotated[str | None, typer.Argument(help="Print this one, to edit and give a job as search_space.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Lists the search spaces that the service has, or prints one."""
    from service.cli import terminal

    with client_at(url, token) as client:
        found = client.search_spaces()
    if name is not None:
        import yaml

        from search_spaces.nearest import did_you_mean

        chosen = next((one for one in found if one.name == name), None)
        if chosen is None:
            names = [one.name for one in found]
            raise ServiceError(f"no search space {name!r}; known: {', '.join(names)}{did_you_mean(name, names)}")
        if as_json:
            say_json(chosen)
            return
        content = {"search_space": chosen.space}
        dumped = inert_data(lambda readable: yaml.safe_dump(content, sort_keys=False, allow_unicode=readable))
        typer.echo(dumped.rstrip())
        return
    if as_json:
        say_json_list(found)
        return
    from search_spaces import SearchSpace

    table = terminal.listing("name", "optimizer", "parameters")
    for one in found:
        table.add_row(
            one.name,
            one.optimizer,
            ", ".join(dict.fromkeys(parameter.name for parameter in SearchSpace.from_json(one.space).parameters)),
        )
    terminal.show(terminal.new_console(), table)
