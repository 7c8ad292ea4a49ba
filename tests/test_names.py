"""One class name has one meaning, in all packages."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("service", "trainers", "shampoo", "search_spaces")
SAME_MEANING = {"ServiceBusy"}
"""The service's error, and how its client raises it."""


@pytest.mark.slow
def test_no_two_classes_have_one_name() -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(str(path.relative_to(ROOT)))

    assert {name: paths for name, paths in found.items() if len(paths) > 1 and name not in SAME_MEANING} == {}
