"""Lengths of steps after the scale of the gradients has changed at once.

    python -m tests.benchmarks.steps.changed_scale

A matrix of 24×16 has independent normal gradients, which after so many steps are all multiplied by the same factor. A
method that divides by averaged squares then takes steps of another length until its average has followed. Counted are
the steps until all that follow are within a factor of two of the usual length, the median of 40 before the change, and
how long the longest of them was; the worst of the seeds.

    longest_over_usual    the worst of all
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from shampoo import Shampoo
from tests.benchmarks.report import Cell, report

METHODS: Mapping[str, Mapping[str, Any]] = {
    "AdamW": {"preconditioner": "none"},
    "shampoo": {},
    "shampoo, ungrafted": {"grafting": "none"},
    "soap": {"preconditioner": "soap", "betas": (0.9, 0.95)},
    "kl": {"preconditioner": "kl", "betas": (0.9, 0.95)},
}
COLUMNS = ("method", "gradients times", "after steps", "steps until usual", "longest/usual")


def lengths(arguments: Mapping[str, Any], *, factor: float, at: int, num_steps: int, seed: int) -> list[float]:
    """Root mean squares of so many steps of a matrix, with gradients that step `at`, counted from 0, multiplies."""
    generator = torch.Generator().manual_seed(seed)
    param = torch.nn.Parameter(torch.zeros(24, 16))
    optimizer = Shampoo([param], lr=1.0, **arguments)
    found: list[float] = []
    for step in range(num_steps):
        before = param.detach().clone()
        # None so small that what is added to the root of the squares would count.
        scale = max(1.0, 1 / factor) * (factor if step >= at else 1.0)
        param.grad = torch.randn(24, 16, generator=generator) * scale
        optimizer.step()
        found.append((param.detach() - before).square().mean().sqrt().item())
    return found


def recovery(arguments: Mapping[str, Any], *, factor: float, at: int, seed: int, limit: int) -> tuple[int, float]:
    """Steps until all that follow have the usual length within a factor of two, at most `limit`; and the longest's
    length over the usual one."""
    found = lengths(arguments, factor=factor, at=at, num_steps=at + limit, seed=seed)
    usual = statistics.median(found[at - 40 : at])
    others = [step for step, length in enumerate(found[at:], start=1) if not usual / 2 <= length <= usual * 2]
    return max(others, default=0), max(found[at:]) / usual


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--factors", nargs="+", type=float, default=[1e3, 1e6], help="changes of the scale")
    parser.add_argument("--after", nargs="+", type=int, default=[100, 1000, 5000], help="steps, 40 or more")
    parser.add_argument("--limit", type=int, default=500, help="steps to look at afterwards")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)  # matrices as small as these
    rows: list[tuple[Cell, ...]] = []
    for name in options.methods:
        for factor in options.factors:
            for at in options.after:
                runs = [
                    recovery(METHODS[name], factor=factor, at=at, seed=seed, limit=options.limit)
                    for seed in range(options.seeds)
                ]
                rows.append((name, f"{factor:g}", at, max(steps for steps, _ in runs), max(long for _, long in runs)))
    report(
        "changed_scale",
        columns=COLUMNS,
        rows=rows,
        figures={"rows": [dict(zip(COLUMNS, row, strict=True)) for row in rows], "seeds": options.seeds},
        ratios={"longest_over_usual": max(float(row[-1]) for row in rows)},
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
