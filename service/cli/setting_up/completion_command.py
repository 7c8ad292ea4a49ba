"""The command that prints a shell's completion: `completion`. Typer makes it, and answers it while one types."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

PROGRAM = "shampoo-tuner"

app = typer.Typer()


@app.command()
def completion(shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="Your shell.")]) -> None:
    """Prints the completion for a shell, e.g. eval "$(shampoo-tuner completion bash)" in ~/.bashrc."""
    from service.cli.setting_up.typer_internals import get_completion_script

    variable = f"_{PROGRAM.replace('-', '_').upper()}_COMPLETE"
    typer.echo(get_completion_script(prog_name=PROGRAM, complete_var=variable, shell=shell))
