"""One Markdown table of all stages, made from their JSON files, with the device and versions they were taken with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.gpu.results import Cell, markdown

COLUMNS = ("stage", "what", "figures", "wrong", "each, or the first", "seconds")
_OF_THE_MACHINE = ("device", "python", "torch", "cuda", "driver", "commit", "date")


def table(directory: Path) -> str:
    """The machine in a line, the table, and what is wrong or was left out.

    Raises:
        FileNotFoundError: the directory has no file of a stage.
    """
    stages = {path.stem: _read(path) for path in sorted(directory.glob("*.json"))}
    if not stages:
        raise FileNotFoundError(f"no stage has written a JSON file into {directory}")
    machines = {tuple(_machine(stage)) for stage in stages.values()}
    lines = [", ".join(machine) for machine in sorted(machines)]
    rows = [row for name, stage in stages.items() for row in _rows(name, stage)]
    faults = [
        f"- {word} {name}: {str(why).strip().splitlines()[-1]}"
        for stage in stages.values()
        for word, found in (("WRONG", stage["problems"]), ("left out", stage["left_out"]))
        for name, why in found.items()
    ]
    return "\n\n".join(["\n".join(lines), markdown(COLUMNS, rows), *(["\n".join(faults)] if faults else [])])


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def _machine(stage: dict[str, Any]) -> list[str]:
    known = stage["environment"]
    return [f"{name} {known[name]}" for name in _OF_THE_MACHINE if known.get(name)]


def _rows(name: str, stage: dict[str, Any]) -> list[list[Cell]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for figure in stage["figures"].values():
        groups.setdefault(figure["group"], []).append(figure)
    return [
        [
            name,
            group,
            len(figures),
            sum(figure["problem"] is not None for figure in figures),
            next((figure["summary"] for figure in figures if figure["summary"]), "-").replace("|", "/"),
            float(sum(figure["seconds"] for figure in figures)),
        ]
        for group, figures in groups.items()
    ]
