"""Docstrings begin with the thing or the deed that they tell of."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = ("service", "trainers", "shampoo", "search_spaces")
QUESTIONS = ("How", "When", "Where", "Whether", "Which", "Who", "Whose", "Why")


@pytest.mark.parametrize(
    ("words", "folders"), [(("What",), (*CODE, "tests", "docker", ".ci")), (QUESTIONS, CODE)], ids=["what", "questions"]
)
def test_no_docstring_begins_like_a_question(words: tuple[str, ...], folders: tuple[str, ...]) -> None:
    """Such a line names nothing: a reader learns the noun or the verb from it only if it has one first, and the
    OpenAPI document shows it without the name of the field above it."""
    roundabout = re.compile(rf'^\s*"""\s*(?:{"|".join(words)})\b.*', re.MULTILINE)
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in roundabout.findall(path.read_text(encoding="utf-8"))
    ]

    assert not found, "begin with a noun or a verb:\n" + "\n".join(found)
