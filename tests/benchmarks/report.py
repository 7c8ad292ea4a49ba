"""The end of every benchmark: a table for people, then one line of JSON for programs."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

Cell = str | int | float


def report(
    name: str,
    *,
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    figures: Mapping[str, object],
    ratios: Mapping[str, float],
    json_file: Path | None = None,
) -> None:
    """Prints the table, and as the last line of standard output the benchmark's JSON object; writes it to a file too.

    Args:
        name: of the benchmark's module.
        columns: head of the table, with units.
        rows: the table; floats are printed with three significant digits.
        figures: what was measured and with which settings, JSON-able, units in the names.
        ratios: the claims, `what_over_what`.
        json_file: where the object goes as well.
    """
    print_table(columns, rows)
    for claim, ratio in ratios.items():
        print(f"{claim}: {_text(ratio)}")
    result = {"benchmark": name, "figures": figures, "ratios": ratios, "environment": environment()}
    text = json.dumps(result, allow_nan=False)
    if json_file is not None:
        json_file.write_text(text + "\n")
    print(text)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Prints a table, and an empty line; floats with three significant digits."""
    lines = [tuple(columns), *(tuple(_text(cell) for cell in row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        first, *rest = (
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join((first, *rest)))
    print()


def environment() -> dict[str, object]:
    """Where the figures come from."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "num_threads": torch.get_num_threads(),
        "num_cpus": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "machine": platform.machine(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
    }


def _text(cell: Cell) -> str:
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:.0f}" if cell >= 100 else f"{cell:#.3g}"
