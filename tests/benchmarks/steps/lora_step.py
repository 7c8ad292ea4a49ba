"""How long a step of `LoraRite` takes beside AdamW's on the same adapters.

    python -m tests.benchmarks.steps.lora_step --width 768 --layers 12 --rank 16

The adapters are those of a transformer's blocks: query, key, value, output, and up and down projections four times as
wide. Both optimizers take steps of their own copies in turns, with the same gradients; figures are medians.

    step_over_adamw    a step of LoRA-RITE over one of `torch.optim.AdamW(fused=True)`
    state_over_adamw   bytes of the states
"""

from __future__ import annotations

import argparse
import functools
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch.nn import Parameter
from torch.optim import AdamW, Optimizer

from shampoo import LoraRite
from tests.benchmarks.report import Cell, report
from tests.benchmarks.steps.contestants import Contestant, GradientSource, parameters
from tests.benchmarks.steps.model_shapes import Shapes
from trainers.memory.peak import state_bytes

NUM_WARM_UP_STEPS = 3
MAKERS: Mapping[str, Callable[[list[Parameter]], Optimizer]] = {
    "lora-rite": LoraRite,
    "adamw": functools.partial(AdamW, fused=True),
}


def adapter_shapes(*, width: int, num_layers: int, rank: int) -> Shapes:
    """A and B in turns of each linear layer's adapter."""
    sides = [*[(width, width)] * 4, (4 * width, width), (width, 4 * width)]
    return [shape for _ in range(num_layers) for out, into in sides for shape in ((rank, into), (out, rank))]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--width", type=int, default=768, help="width of the model (default: 768, GPT-2's)")
    parser.add_argument("--layers", type=int, default=12, help="blocks of the model (default: 12)")
    parser.add_argument("--rank", type=int, default=16, help="rank of the adapters (default: 16)")
    parser.add_argument("--steps", type=int, default=20, help="steps of each (default: 20)")
    parser.add_argument("--threads", type=int, help="threads of torch; default: as it has them")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    options = parser.parse_args()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    shapes = adapter_shapes(width=options.width, num_layers=options.layers, rank=options.rank)
    source = GradientSource(shapes, options.device)
    contestants = {}
    for name, make in MAKERS.items():
        params = parameters(shapes, options.device)
        with torch.no_grad():
            for param in params:
                param.normal_()
        contestants[name] = Contestant(name, params, [make(params)])
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for step in range(NUM_WARM_UP_STEPS + options.steps):
        for name, contestant in contestants.items():
            taken = contestant.milliseconds(source, step)
            if step >= NUM_WARM_UP_STEPS:
                times[name].append(taken)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    states = {name: state_bytes(contestant.optimizers[0]) for name, contestant in contestants.items()}
    rows: list[list[Cell]] = [[name, medians[name], max(times[name]), states[name] / 1e6] for name in contestants]
    report(
        "lora_step",
        columns=("optimizer", "step ms", "longest ms", "state MB"),
        rows=rows,
        figures={
            "width": options.width,
            "layers": options.layers,
            "rank": options.rank,
            "milliseconds": times,
            "state_bytes": states,
        },
        ratios={
            "step_over_adamw": medians["lora-rite"] / medians["adamw"],
            "state_over_adamw": states["lora-rite"] / states["adamw"],
        },
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
