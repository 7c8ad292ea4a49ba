"""Docstrings begin with the thing or the deed that they tell of."""

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = ("service", "trainers", "shampoo", "search_spaces")
QUESTIONS = ("How", "When", "Where", "Whether", "Which", "Who", "Whose", "Why")
RELATIONS = ("Of", "Those", "Whose", "As", "Beyond", "By", "That")
PLACES = ("After", "Before", "Between", "From", "Into", "Likewise", "Over", "Since", "Until", "Up", "While", "Without")
"""Words with which a field or a constant goes on from its name: `POLL_SECONDS`, between two looks."""


@pytest.mark.parametrize(
    ("words", "folders"),
    [
        pytest.param(("What",), (*CODE, "tests", "docker", ".ci"), id="what"),
        pytest.param(QUESTIONS, CODE, id="questions"),
    ],
)
def test_docstrings_begin_with_a_noun_or_a_verb(words: tuple[str, ...], folders: tuple[str, ...]) -> None:
    """Others name nothing: a reader learns the noun or the verb from them only if they have one first."""
    roundabout = re.compile(rf'^\s*"""\s*(?:{"|".join(words)})\b.*', re.MULTILINE)
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in roundabout.findall(path.read_text(encoding="utf-8"))
    ]

    assert not found, "begin with a noun or a verb:\n" + "\n".join(found)


@pytest.mark.parametrize("folder", [*CODE, "tests/benchmarks"])
def test_docstrings_say_what_a_thing_is_before_whose_it_is(folder: str) -> None:
    """Each is read on its own: in the help of an editor, in OpenAPI, among what a search found. One of a field or a
    constant does not go on from the name above it, either."""
    found = [
        f"{path.relative_to(ROOT)}: {first}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for module in [ast.parse(path.read_text(encoding="utf-8"))]
        for words, firsts in ((RELATIONS, _first_lines), ((*RELATIONS, *PLACES), _first_lines_of_fields))
        for first in firsts(module)
        if re.match(rf"(?:{'|'.join(words)})\b", first)
    ]

    assert not found, "begin with a noun or a verb:\n" + "\n".join(found)


@pytest.mark.parametrize("folder", [*CODE, "tests/benchmarks"])
def test_help_and_descriptions_say_what_a_thing_is_before_whose_it_is(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for text in _texts_for_users(node)
        if re.match(rf"(?:{'|'.join((*RELATIONS, *PLACES))})\b", text, re.IGNORECASE)
    ]

    assert not found, "begin with a noun or a verb:\n" + "\n".join(found)


def _texts_for_users(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.keyword(arg="help" | "description", value=ast.Constant(value=str(text))):
            yield text


def _first_lines_of_fields(module: ast.Module) -> Iterator[str]:
    bodies = [node.body for node in ast.walk(module) if isinstance(node, ast.Module | ast.ClassDef)]
    for field, after in (pair for body in bodies for pair in itertools.pairwise(body)):
        match after:
            case ast.Expr(value=ast.Constant(value=str(text))) if isinstance(field, ast.Assign | ast.AnnAssign):
                yield text.splitlines()[0]


def _first_lines(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield docstring.splitlines()[0]
