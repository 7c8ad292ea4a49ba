"""`shampoo-tuner workload`: a template of a workload of one's own, and a check of one."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from service.cli.asking import AsJson, say_json_content
from trainers.installation.distribution import check_packages_here

app = typer.Typer(
    help="Bring a model of your own: start from a template, and check what you have.", no_args_is_help=True
)

_TEMPLATE = "workload/template.py"
_TEMPLATE_CLASS = "WorkloadTemplate"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*([-_][A-Za-z0-9]+)*")


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="What to call it, e.g. my-model.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print it as a text in JSON, with the names of its file and its workload.")
    ] = False,
) -> None:
    """Prints a complete small workload to start from: `shampoo-tuner workload new my-model > my_model.py`."""
    import trainers

    if not _NAME.fullmatch(name):
        raise typer.BadParameter(
            f"{name!r}: must begin with a letter and have only letters, digits, - and _", param_hint="NAME"
        )
    class_name = "".join(word[:1].upper() + word[1:] for word in re.split(r"[-_]", name))
    module_name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()
    # Read, not imported: it needs torch.
    template = (Path(trainers.__file__).parent / _TEMPLATE).read_text()
    if re.search(rf"\b{class_name}\b", template) or keyword.iskeyword(class_name) or _is_taken(module_name):
        raise typer.BadParameter(
            f"{name!r} is the name of something else in Python or the environment: choose another", param_hint="NAME"
        )
    source = template.replace(_TEMPLATE_CLASS, class_name)
    file, workload = f"{module_name}.py", f"{module_name}:{class_name}"
    if as_json:
        say_json_content({"workload": workload, "file": file, "source": source})
        return
    typer.echo(source, nl=False)
    typer.echo(
        f"Saved as {file}, it is the workload {workload} of services that were started in that directory. Check it "
        f"there: shampoo-tuner workload check {workload}",
        err=True,
    )


def _is_taken(module_name: str) -> bool:
    """True if an installed module has the name; one in the current directory may be the file that is being written."""
    if module_name in sys.stdlib_module_names:
        return True
    spec = importlib.util.find_spec(module_name)
    return spec is not None and (spec.origin is None or Path(spec.origin).resolve().parent != Path.cwd())


@app.command()
def check(
    name: Annotated[str, typer.Argument(help="module:Class, found from the current directory, or a registered name.")],
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="Option of the workload. Repeatable.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples per step; a multiple of 6. By default 12.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds for each rule. By default 120.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads. By default 1.")] = None,
    as_json: AsJson = False,
) -> None:
    """Checks that a workload keeps the rules that trials rely on.

    Exit status 0: no rule failed.
    """
    import subprocess

    from trainers.workloads.describe import environment_of_children

    check_packages_here()
    given = {"--batch-size": batch_size, "--timeout": timeout, "--threads": threads}
    command = [sys.executable, "-m", "trainers.workload_check", name]
    for value in option or ():
        command += ["--option", value]
    for flag, number in given.items():
        if number is not None:
            command += [flag, str(number)]
    if as_json:
        command.append("--json")
    # In a process of its own: the checker needs torch, and this command line must load without it.
    status = subprocess.run(command, env=environment_of_children(), check=False).returncode
    raise typer.Exit(status if status >= 0 else 1)
