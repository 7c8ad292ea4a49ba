"""Private parts of libraries are touched in the modules that say which release they are of, and why."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLACES = {
    "torch": {"shampoo/torch_internals.py", "trainers/torch_internals.py"},
    "ray": {"service/scheduler/cluster/ray_internals.py"},
    "optuna": {"service/optuna_internals.py"},
    "typer": {"service/cli/setting_up/typer_internals.py"},
}
DOCUMENTED = {"_exit", "_make", "_replace"}
"""Names of the standard library that begin with an underscore and are public: of `os`, and of named tuples."""
FILES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for package in ("service", "trainers", "shampoo", "search_spaces")
    for path in sorted((ROOT / package).rglob("*.py"))
}


@pytest.mark.parametrize("library", PLACES)
def test_private_parts_are_touched_in_one_module_of_a_package(library: str) -> None:
    private = re.compile(
        rf"^\s*(?:from {library}[\w.]*\._\w|from {library}[\w.]* import .*\b_[a-z]|import {library}[\w.]*\._\w)"
        rf"|(?<![\w.`\"]){library}(?:\.\w+)*\._[a-z]",
        re.MULTILINE,
    )

    assert {path for path, text in FILES.items() if private.search(text)} == PLACES[library]


@pytest.mark.parametrize("library", PLACES)
def test_modules_of_private_parts_name_the_release(library: str) -> None:
    for path in PLACES[library]:
        assert re.search(rf"\b{library} \d+\.\d+", FILES[path], re.IGNORECASE), path


def test_no_other_module_reads_private_attributes_of_objects_that_it_did_not_make() -> None:
    internals = set[str]().union(*PLACES.values())
    found = [
        f"{path}:{line}: {name}"
        for path, text in FILES.items()
        if path not in internals and "._" in text
        for line, name in _foreign(ast.parse(text))
    ]

    assert not found, "\n".join(found)


def _foreign(module: ast.Module) -> list[tuple[int, str]]:
    """The private attributes that a module reads, with their lines, but for those that it defines or that a class of
    its own has: `trial._trial_id` of Optuna's."""
    defined = set(DOCUMENTED)
    read: list[ast.Attribute] = []
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                defined.add(node.name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                defined.add(name)
            case ast.Attribute(ctx=ast.Store()):
                defined.add(node.attr)
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute() if re.match("_[a-z]", node.attr):
                read.append(node)
    return [(node.lineno, ast.unparse(node)) for node in read if node.attr not in defined]
