"""`shampoo-tuner fingerprint`: what tells a model from others, to ask for configs of tuned ones like it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.asking import say, say_json_content
from service.inert import one_line
from trainers.config import InvalidConfig
from trainers.identity.safetensors_header import shape_of_safetensors
from trainers.identity.values import Fingerprint, fingerprint_of_read
from trainers.installation.distribution import check_packages_here

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainers.config import Json

app = typer.Typer()


@app.command()
def fingerprint(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="module:Class of a torch.nn.Module or a workload, found from the current directory; a workload's "
            "name; or a file: FILE.safetensors, or a state dict that torch.save wrote.",
        ),
    ],
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Argument of the class or workload. Repeatable."),
    ] = None,
    frozen: Annotated[
        list[str] | None,
        typer.Option(
            "--frozen",
            metavar="PATTERN",
            help="Parameters of a file or a module that are not trained, by their names: 'backbone.*'. Repeatable.",
        ),
    ] = None,
) -> None:
    """Prints the fingerprint of a model as JSON: `shampoo-tuner fingerprint my_model:Net > net.json`.

    Only parameters that are trained count. From a file with weights only sizes and names are read, and no code runs;
    such a file does not say which parameters are frozen: `--frozen` does. Keep the fingerprint to ask for a config
    before anything is trained: `shampoo-tuner recommend --fingerprint net.json`.
    """
    try:
        found = read_fingerprint(model, dict(map(_option, option or ())), frozen=frozen or ())
    except InvalidConfig as error:
        # `workload_options.width`, or `options` of what takes none
        place, _, of_option = error.field.partition(".")
        hint = {"workload_options": "--option", "options": "--option", "frozen": "--frozen"}.get(place, "MODEL")
        named = f"{of_option}: " if of_option else ""
        raise typer.BadParameter(one_line(f"{named}{error.message}"), param_hint=hint) from error
    for remark in found.remarks:
        say(remark, err=True)
    say_json_content(found.to_json())


def read_fingerprint(model: str, options: dict[str, Json], *, frozen: Sequence[str] = ()) -> Fingerprint:
    """The fingerprint of a file's, a workload's or a module's model.

    Args:
        frozen: patterns of the names of parameters that are not trained; a workload says that itself.

    Raises:
        InvalidConfig: it cannot be told; the message says why.
    """
    from trainers.identity.asking import ask_fingerprint

    path = Path(model)
    if path.is_file() and path.suffix == ".safetensors":
        if options:
            raise InvalidConfig("options", f"have no effect with a file, got {', '.join(options)}")
        try:
            return fingerprint_of_read(shape_of_safetensors(path, frozen=frozen), path.name)
        except (ValueError, OSError) as error:
            raise InvalidConfig("name", str(error)) from error
    check_packages_here()
    # In a process of its own: it needs torch, and this command line must load without it.
    return ask_fingerprint(model, options, frozen=frozen)


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{text!r} must be NAME=VALUE, e.g. width=128", param_hint="--option")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
