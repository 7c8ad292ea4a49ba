"""Numbers of our own choosing say where they come from."""

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("service", "trainers", "shampoo", "search_spaces")

_CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
_OF_A_GROUP = re.compile(r"(Both|All) ")


@pytest.mark.slow
def test_every_bare_constant_says_where_it_comes_from() -> None:
    """A reader who wants to change a number must learn what it was chosen for: a measurement, a paper, another system's
    limit, or judgement. A docstring below it says so, or a comment beside or above it."""
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if "migrations" not in path.parts
        for line in _unexplained(path.read_text(encoding="utf-8"))
    ]

    assert not found, "give the unit, the purpose and the source in a docstring below:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        'LIMIT = 2**20\n"""By judgement."""\n',
        "LIMIT = 3  # by judgement\n",
        "# By judgement.\nLIMIT = 3\n",
        'LOW = 1\nHIGH = 2\n"""Both by judgement."""\n',
        'LOW = 1\nNAME = "a"\nHIGH = 2\n"""All by judgement."""\n',
        "LIMITS = (1, 2)\n",
        "IS_ON = True\n",
        "TWICE = 2 * LIMIT\n",
        "limit = 3\n",
    ],
)
def test_a_constant_that_is_explained_or_not_bare_is_accepted(source: str) -> None:
    assert list(_unexplained(source)) == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("LIMIT = 3\n", [1]),
        ("LIMIT: float = -0.5\n", [1]),
        ("LIMIT = 64 * 2**20\n", [1]),
        ("_LIMIT = 3\n", [1]),
        ("class Rule:\n    LIMIT = 3\n", [2]),
        ('LOW = 1\nHIGH = 2\n"""By judgement."""\n', [1]),
        ('LOW = 1\n\nHIGH = 2\n"""Both by judgement."""\n', [1]),
        ("# By judgement.\nLOW = 1\nHIGH = 2\n", [3]),
    ],
)
def test_a_bare_constant_without_a_word_is_found(source: str, lines: list[int]) -> None:
    assert list(_unexplained(source)) == lines


def _unexplained(source: str) -> Iterator[int]:
    """The lines of bare constants, of a module or a class, with neither a docstring nor a comment."""
    lines = ["", *source.splitlines()]
    for scope in ast.walk(ast.parse(source)):
        if not isinstance(scope, ast.Module | ast.ClassDef):
            continue
        for index, statement in enumerate(scope.body):
            if not _is_constant(statement) or not _is_bare(statement.value):
                continue
            has_comment = "#" in lines[_end(statement)] or lines[statement.lineno - 1].lstrip().startswith("#")
            if not has_comment and not _has_docstring(scope.body[index:]):
                yield statement.lineno


def _has_docstring(statements: Sequence[ast.stmt]) -> bool:
    """Whether one stands below the first of the statements, or below the last of constants that follow it line by line
    and says that it is of them all."""
    for index, (constant, below) in enumerate(pairwise(statements)):
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            return index == 0 or _OF_A_GROUP.match(below.value.value) is not None
        if not _is_constant(below) or below.lineno > _end(constant) + 1:
            return False
    return False


def _is_constant(statement: ast.stmt) -> TypeGuard[ast.Assign | ast.AnnAssign]:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return _CONSTANT.fullmatch(name) is not None
        case _:
            return False


def _is_bare(value: ast.expr | None) -> bool:
    """Whether it is a number, or arithmetic on numbers alone."""
    match value:
        case ast.Constant(value=number):
            return isinstance(number, int | float) and not isinstance(number, bool)
        case ast.UnaryOp(operand=operand):
            return _is_bare(operand)
        case ast.BinOp(left=left, right=right):
            return _is_bare(left) and _is_bare(right)
        case _:
            return False


def _end(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno
