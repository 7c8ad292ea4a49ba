"""Docstrings begin with the thing or the deed that they tell of."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = ("service", "trainers", "shampoo", "search_spaces")
QUESTIONS = ("How", "When", "Where", "Whether", "Which", "Who", "Whose", "Why")


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
