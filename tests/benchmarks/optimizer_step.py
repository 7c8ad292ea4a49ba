"""How long a step of Shampoo takes: against its own matrix products, and against `torch.optim.AdamW(fused=True)`.

    python -m tests.benchmarks.optimizer_step --models resnet50 gpt2 --frequency 50

Parameters have the shapes of real models, gradients are random. Both optimizers step alternately in one process, over
whole refresh cycles. `ordinary_over_floor`: the median step without refresh over the time its matrix products take
at the speed of `torch.mm` measured beside it, 4·m·n·(m + n) operations for each m×n block. `cycle_over_adamw`: the mean
step of a whole cycle, refresh included, over AdamW's median. Both are the worst of the models.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from shampoo import Shampoo
from shampoo.blocking import regions
from tests.benchmarks.model_shapes import MODELS, Shapes
from tests.benchmarks.report import report

COLUMNS = (
    "model",
    "blocks",
    "floor ms",
    "ordinary ms",
    "refresh ms",
    "cycle mean ms",
    "AdamW ms",
    "ordinary/floor",
    "worst/median",
    "cycle/AdamW",
)


def product_operations(shapes: Shapes, block: int) -> int:
    """Floating-point operations of one step's statistics and preconditioning: for each mode of each block, twice
    2·numel·d."""
    return sum(
        region.num_blocks * 4 * math.prod(region.block) * sum(region.block)
        for shape in shapes
        for region in regions(shape, block)
        if len(region.block) > 1
    )


def milliseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def measure(shapes: Shapes, *, block: int, frequency: int, steps: int) -> dict[str, float]:
    """Times of both optimizers on parameters of these shapes, in milliseconds, and derived ratios."""
    torch.manual_seed(0)
    gradient_sets = [[torch.randn(shape) * 1e-2 for shape in shapes] for _ in range(2)]
    ours, theirs = ([torch.nn.Parameter(torch.randn(shape) * 1e-2) for shape in shapes] for _ in range(2))
    shampoo = Shampoo(
        ours,
        lr=1e-3,
        weight_decay=1e-4,
        max_preconditioner_dim=block,
        precondition_frequency=frequency,
        start_preconditioning_step=1,  # so that one warm-up step brings it into its steady state
    )
    adamw = torch.optim.AdamW(theirs, lr=1e-3, weight_decay=1e-4, fused=True)
    A = torch.randn(1024, 1024)
    product = torch.empty_like(A)
    times: dict[str, list[float]] = {"ordinary": [], "refresh": [], "adamw": [], "mm": []}
    for step in range(1, steps + 2):
        for params in (ours, theirs):
            for param, gradient in zip(params, gradient_sets[step % 2], strict=True):
                param.grad = gradient
        ours_ms = milliseconds(shampoo.step)
        adamw_ms = milliseconds(adamw.step)
        mm_ms = milliseconds(lambda: torch.mm(A, A, out=product))
        if step > 1:
            times["refresh" if (step - 1) % frequency == 0 else "ordinary"].append(ours_ms)
            times["adamw"].append(adamw_ms)
            times["mm"].append(mm_ms)
    operations_per_ms = 2 * 1024**3 / statistics.median(times["mm"])
    floor = product_operations(shapes, block) / operations_per_ms
    all_steps = times["ordinary"] + times["refresh"]
    # With a refresh at every step there is no other.
    ordinary = statistics.median(times["ordinary"] or times["refresh"])
    cycle = statistics.fmean(all_steps)
    adamw_median = statistics.median(times["adamw"])
    return {
        "num_blocks": sum(region.num_blocks for shape in shapes for region in regions(shape, block)),
        "gemm_gigaflops": operations_per_ms / 1e6,
        "floor_ms": floor,
        "ordinary_ms": ordinary,
        "refresh_ms": statistics.median(times["refresh"]),
        "cycle_mean_ms": cycle,
        "adamw_ms": adamw_median,
        "ordinary_over_floor": ordinary / floor,
        "worst_over_median": max(all_steps) / statistics.median(all_steps),
        "cycle_over_adamw": cycle / adamw_median,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=sorted(MODELS), default=["resnet50", "gpt2"])
    parser.add_argument("--frequency", type=int, default=50, help="steps from refresh to refresh")
    parser.add_argument("--block", type=int, default=256, help="longest side of a block")
    parser.add_argument("--steps", type=int, help="measured steps, a multiple of the frequency (default: one cycle)")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    options = parser.parse_args()
    steps = options.frequency if options.steps is None else options.steps
    if steps < 1 or steps % options.frequency != 0:
        parser.error(f"--steps {steps} is not a positive multiple of --frequency {options.frequency}")
    figures = {
        name: measure(MODELS[name](), block=options.block, frequency=options.frequency, steps=steps)
        for name in options.models
    }
    rows = [
        (
            name,
            int(f["num_blocks"]),
            *(f[key] for key in ("floor_ms", "ordinary_ms", "refresh_ms", "cycle_mean_ms", "adamw_ms")),
            *(f[key] for key in ("ordinary_over_floor", "worst_over_median", "cycle_over_adamw")),
        )
        for name, f in figures.items()
    ]
    report(
        "optimizer_step",
        columns=COLUMNS,
        rows=rows,
        figures={**figures, "frequency": options.frequency, "block": options.block, "steps": steps},
        ratios={
            claim: max(figure[claim] for figure in figures.values())
            for claim in ("ordinary_over_floor", "cycle_over_adamw")
        },
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
