"""Docstrings begin with the thing or the deed that they tell of."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("service", "trainers", "shampoo", "search_spaces", "tests", "docker", ".ci")

_ROUNDABOUT = re.compile(r'^\s*"""\s*What\b.*', re.MULTILINE)


def test_no_docstring_begins_with_what() -> None:
    """Such a line is true of anything and names nothing: a reader learns the noun or the verb from it only if it has
    one first."""
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for line in _ROUNDABOUT.findall(path.read_text(encoding="utf-8"))
    ]

    assert not found, "begin with a noun or a verb:\n" + "\n".join(found)
