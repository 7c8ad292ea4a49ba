"""Docstrings begin with the thing or the deed that they tell of."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = ("service", "trainers", "shampoo", "search_spaces")
QUESTIONS = ("How", "When", "Where", "Whether", "Which", "Who", "Whose", "Why")
RELATIONS = ("Of", "Those", "As", "By", "That")


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


def test_docstrings_say_what_a_thing_is_before_whose_it_is() -> None:
    """Those of fields may go on from the field's name; a function, class or module is read about on its own."""
    found = [
        f"{path.relative_to(ROOT)}: {first}"
        for folder in CODE
        for path in sorted((ROOT / folder).rglob("*.py"))
        for first in _first_lines(ast.parse(path.read_text(encoding="utf-8")))
        if re.match(rf"(?:{'|'.join(RELATIONS)})\b", first)
    ]

    assert not found, "begin with a noun or a verb:\n" + "\n".join(found)


def _first_lines(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield docstring.splitlines()[0]
