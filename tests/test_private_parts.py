"""Private parts of torch and Ray are touched in the modules that say which release they are of, and why."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLACES = {
    "torch": {"shampoo/torch_internals.py", "trainers/torch_internals.py"},
    "ray": {"service/scheduler/cluster/ray_internals.py"},
}


@pytest.mark.parametrize("library", PLACES)
def test_private_parts_are_touched_in_one_module_of_a_package(library: str) -> None:
    private = re.compile(
        rf"^\s*(?:from {library}[\w.]*\._\w|from {library}[\w.]* import .*\b_[a-z]|import {library}[\w.]*\._\w)"
        rf"|(?<![\w.`\"]){library}(?:\.\w+)*\._[a-z]",
        re.MULTILINE,
    )
    found = {
        str(path.relative_to(ROOT))
        for package in ("service", "trainers", "shampoo", "search_spaces")
        for path in (ROOT / package).rglob("*.py")
        if private.search(path.read_text(encoding="utf-8"))
    }

    assert found == PLACES[library]
