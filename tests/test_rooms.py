"""A folder is one subject that can be looked over, and so is a module."""

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("service", "trainers", "shampoo", "search_spaces", "tests")
MAX_MODULES = 16
"""Of a folder, beside its `__init__`."""
MAX_LINES = 400
"""Of a module."""
LARGER_FOLDERS = {
    "service/store/migrations/versions",  # one for each revision of the schema: Alembic looks for them in one folder
}


def _modules() -> list[Path]:
    return [path.relative_to(ROOT) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def test_no_folder_has_more_modules_than_can_be_looked_over() -> None:
    found = Counter(str(path.parent) for path in _modules() if path.name != "__init__.py")
    large = {folder: number for folder, number in found.items() if number > MAX_MODULES}

    assert {folder: number for folder, number in large.items() if folder not in LARGER_FOLDERS} == {}
    assert large.keys() >= LARGER_FOLDERS, "an exception that is none any more"


def test_no_module_is_longer_than_can_be_looked_over() -> None:
    lines = {str(path): len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in _modules()}

    assert {path: number for path, number in lines.items() if number > MAX_LINES} == {}


def test_a_folder_of_the_source_says_what_lives_there_and_what_does_not() -> None:
    folders = {path.parent for path in _modules() if path.parts[0] != "tests"}
    said = {str(folder): _docstring(ROOT / folder / "__init__.py") for folder in folders}
    limit = re.compile(r"\b(?:never|no|none|nothing|not|nor)\b", re.IGNORECASE)

    assert {folder for folder, words in said.items() if not limit.search(words)} == LARGER_FOLDERS


def _docstring(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "") if path.is_file() else ""
