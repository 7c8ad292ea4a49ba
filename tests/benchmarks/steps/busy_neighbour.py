"""Effect of a second busy process on a step: ours, against the same step with multi-threaded `eigh`, and AdamW.

    python -m tests.benchmarks.steps.busy_neighbour --models mlp --block 256

Each is timed on a machine that has nothing else to do, and at once again beside a process that multiplies matrices on
all cores. A fair share of the machine is half: ratios about 2 are what cannot be helped. LAPACK's threads wait for one
another by spinning, so a neighbour can cost them a hundredfold.

The step refreshes everything. `threaded`: our step without a refresh, then `torch.linalg.eigh` of the same factors,
stack by stack, on all threads. The neighbour makes the machine useless for anything else meanwhile.

    ours_busy_over_quiet, threaded_busy_over_quiet, adamw_busy_over_quiet    medians
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.benchmarks.report import Cell, report
from tests.benchmarks.steps.contestants import (
    NEVER,
    Contestant,
    GradientSource,
    adamw,
    milliseconds,
    ours,
    parameters,
    set_period,
)
from tests.benchmarks.steps.formulas import PRECONDITIONERS, blocks, full_sides
from tests.benchmarks.steps.model_shapes import MODELS, Shapes

_NEIGHBOUR = """
import sys, torch
torch.set_num_threads(int(sys.argv[1]))
A = torch.randn(1024, 1024)
torch.mm(A, A)
print("busy", flush=True)
while True:
    torch.mm(A, A)
"""

COLUMNS = ("model", "step", "quiet ms", "busy ms", "busy/quiet")


@contextmanager
def neighbour(num_threads: int) -> Iterator[None]:
    """A process that keeps so many cores busy, while the block lasts."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(num_threads)}
    command = [sys.executable, "-c", _NEIGHBOUR, str(num_threads)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.kill()


def factors(shapes: Shapes, block: int) -> list[Tensor]:
    """Stacks of symmetric matrices, (K, d, d), as many of each size as the model has factors."""
    sizes: Counter[int] = Counter()
    for piece, count in blocks(shapes, block).items():
        for d in full_sides(piece):
            sizes[d] += count
    stacks = [torch.randn(count, d, d) for d, count in sizes.items()]
    return [torch.bmm(X, X.mT) for X in stacks]


def median(step: Callable[[], float], *, num_steps: int, seconds: float) -> float:
    """The median time of so many steps, or of as many as begin within the time, at least one."""
    times: list[float] = []
    deadline = time.perf_counter() + seconds
    while not times or (len(times) < num_steps and time.perf_counter() < deadline):
        times.append(step())
    return statistics.median(times)


def measure(shapes: Shapes, *, block: int, preconditioner: str, num_steps: int, seconds: float) -> dict[str, Any]:
    """Median milliseconds of every contestant, quiet and busy, and their ratios."""
    torch.manual_seed(0)
    source = GradientSource(shapes, "cpu")
    params = parameters(shapes, "cpu")
    optimizer = ours(params, block=block, preconditioner=preconditioner)
    we = Contestant("ours", params, (optimizer,), lambda refresh: set_period(optimizer, 1 if refresh else NEVER))
    adam = adamw(parameters(shapes, "cpu"))
    stacks = factors(shapes, block)

    def decompose() -> None:
        for stack in stacks:
            torch.linalg.eigh(stack)

    steps: dict[str, Callable[[], float]] = {
        "ours": lambda: we.milliseconds(source, 0, refresh=True),
        "threaded": lambda: we.milliseconds(source, 0) + milliseconds(decompose, torch.device("cpu")),
        "adamw": lambda: adam.milliseconds(source, 0),
    }
    for step in steps.values():
        step()
    figures: dict[str, Any] = {}
    for name, step in steps.items():
        quiet = median(step, num_steps=num_steps, seconds=seconds)
        with neighbour(os.cpu_count() or 1):
            busy = median(step, num_steps=num_steps, seconds=seconds)
        figures[name] = {"quiet_ms": quiet, "busy_ms": busy, "busy_over_quiet": busy / quiet}
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=sorted(MODELS), default=["mlp"])
    parser.add_argument("--preconditioner", choices=PRECONDITIONERS, default="shampoo")
    parser.add_argument("--block", type=int, default=256, help="longest side of a block")
    parser.add_argument("--steps", type=int, default=10, help="steps of each kind")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="seconds after which no further step of a kind begins"
    )
    parser.add_argument("--threads", type=int, help="threads of torch")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    options = parser.parse_args()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    figures = {
        name: measure(
            MODELS[name](),
            block=options.block,
            preconditioner=options.preconditioner,
            num_steps=options.steps,
            seconds=options.seconds,
        )
        for name in options.models
    }
    rows: list[tuple[Cell, ...]] = [
        (model, step, times["quiet_ms"], times["busy_ms"], times["busy_over_quiet"])
        for model, of_model in figures.items()
        for step, times in of_model.items()
    ]
    report(
        "busy_neighbour",
        columns=COLUMNS,
        rows=rows,
        figures={"models": figures, "preconditioner": options.preconditioner, "block": options.block},
        ratios={
            f"{step}_busy_over_quiet": max(of_model[step]["busy_over_quiet"] for of_model in figures.values())
            for step in ("ours", "threaded", "adamw")
        },
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
