"""The papers of the project for tests: their blocks, commands, tables and the paths that they name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("service", "shampoo", "trainers", "search_spaces")
README = "README.md"


def papers() -> list[str]:
    """Every README, the other papers next to those of packages, and those in .github, by path in the repository."""
    found = [ROOT / README]
    for pattern in (*(f"{package}/*.md" for package in PACKAGES), "*/README.md", "tests/*/README.md", ".github/*.md"):
        found += ROOT.glob(pattern)
    return sorted({str(path.relative_to(ROOT)) for path in found if ".venv" not in path.parts})


def text(paper: str) -> str:
    return (ROOT / paper).read_text()


def blocks(paper: str, language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", text(paper), re.MULTILINE | re.DOTALL)


def command_lines(paper: str) -> Iterator[list[str]]:
    """The words of each command in the shell blocks, without prompts of the shell such as here documents."""
    for block in blocks(paper, "sh"):
        without_documents = re.sub(r"<<'(\w+)'\n.*?\n\1$", "", block, flags=re.DOTALL | re.MULTILINE)
        for line in without_documents.replace("\\\n", " ").splitlines():
            for part in re.split(r" && | \| | > |; ", line):
                try:
                    words = shlex.split(part, comments=True)
                except ValueError:  # a quotation that goes on in the next line, as the JSON of a request
                    continue
                if words:
                    yield words


def anchors(paper: str) -> set[str]:
    """The names under which the headings of a paper can be linked to."""
    without_code = re.sub(r"^```.*?^```", "", text(paper), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", without_code, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
