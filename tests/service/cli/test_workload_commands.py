"""`shampoo-tuner workload`: the template and the checker from the command line."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.service.commands import in_one_line, run
from tests.support.waiting import PATIENCE_SECONDS
from trainers.workload import protocol

TEMPLATE = Path(protocol.__file__).with_name("template.py")


@pytest.mark.parametrize(
    ("name", "module", "class_name"),
    [
        ("my-model", "my_model", "MyModel"),
        ("my_model", "my_model", "MyModel"),
        ("MyModel", "my_model", "MyModel"),
        ("tiny-GPT2", "tiny_gpt2", "TinyGPT2"),
    ],
)
def test_new_prints_the_template_under_the_name(name: str, module: str, class_name: str) -> None:
    result = run("workload", "new", name)
    assert result.exit_code == 0, result.output
    (found,) = (node for node in ast.parse(result.stdout).body if isinstance(node, ast.ClassDef))
    assert found.name == class_name
    assert result.stdout == TEMPLATE.read_text().replace("WorkloadTemplate", class_name)
    assert f"Saved as {module}.py" in result.stderr
    assert f"shampoo-tuner workload check {module}:{class_name}" in result.stderr


@pytest.mark.parametrize(
    "name", ["", "1st", "my model", "a:B", "../x", "-", "ä", "none", "tensor", "json", "torch", "trainers"]
)
def test_new_refuses_what_can_be_no_module_or_class(name: str) -> None:
    result = run("workload", "new", "--", name)
    assert result.exit_code == 2
    assert result.stdout == ""


def test_new_says_of_a_name_that_is_taken_what_has_it() -> None:
    told = in_one_line(run("workload", "new", "json").stderr)
    assert "'json' is the name of something else in Python or the environment: choose another" in told


def shampoo_tuner(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    # As the console script: without the current directory to import from.
    code = "from service.cli.commands import main; main()"
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


@pytest.mark.processes
def test_check_runs_where_it_is_started_and_passes_everything_on(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from trainers.workload.template import WorkloadTemplate\n"
        "class Mine(WorkloadTemplate):\n"
        "    def __init__(self, *, width: int, name: str) -> None:\n"
        "        raise ValueError(f'{width!r} {name!r} is not what I want')\n"
    )
    arguments = [
        "--option",
        "width=8",
        "--option",
        "name=x y",
        "--batch-size",
        "18",
        "--timeout",
        str(PATIENCE_SECONDS),
        "--threads",
        "1",
    ]
    checked = shampoo_tuner("workload", "check", "mine:Mine", *arguments, cwd=tmp_path)
    assert checked.returncode == 1
    construction = next(line for line in checked.stdout.splitlines() if line.startswith("failed   construction"))
    assert "8 'x y' is not what I want" in construction


@pytest.mark.processes
def test_wrong_usage_of_check_exits_with_two(tmp_path: Path) -> None:
    assert shampoo_tuner("workload", "check", "mine:Mine", "--batch-size", "7", cwd=tmp_path).returncode == 2
    assert shampoo_tuner("workload", "check", cwd=tmp_path).returncode == 2
