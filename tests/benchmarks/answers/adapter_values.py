"""The first values of trainings of low-rank adapters: learning rates by member, decays, and what is published.

    python -m tests.benchmarks.answers.adapter_values --directory D --log runs.jsonl   # 20 minutes; resumes
    python -m tests.benchmarks.answers.adapter_values --quick      # to see that it works: no figures to quote

Adapters of rank 8 of a small GPT-2 that has learned Python learn C++ (`tests.benchmarks.training.adapters`, with half
the width), for each number of steps with LoRA-RITE, AdamW and Shampoo. Learning rates are multiples of the one that
whole models of that length begin with (`shampoo.starting_values`), without decay; the best multiple is trained with two
decays beside, and the first points of AlgoPerf's Shampoo submission as they are.

    share_of_gain.WHAT.N    of N steps: how much of the loss that the best run of all takes off is taken off by WHAT;
                            the mean over the seeds. `LoRA-RITE x4` has four times the first learning rate of whole
                            models; 0: as untrained adapters
"""

from __future__ import annotations

import argparse
import email
import itertools
import math
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from search_spaces.shampoo_arguments import starting_lr
from search_spaces.shipped.algoperf import POINTS
from service.transfer.candidates import published
from tests.benchmarks.report import Cell, report
from tests.benchmarks.training.adapters import CONFIG, WORKLOAD, adapters_to_train, options_of
from tests.benchmarks.training.training_runs import Recipe, RunLog, Task, Trainers
from trainers.config import OptimizerConfig, OptimizerName, ScheduleConfig

SIZES = {**CONFIG, "n_embd": 64, "n_positions": 32}
NUM_STEPS_BEFORE = 200
"""Steps of the training on Python, a package of its standard library."""
NUM_BYTES = 250_000
"""Most bytes of the text to adapt to."""
NUM_VALIDATED = 64
"""Windows of it that the loss is of."""
MULTIPLES = (0.0625, 0.25, 1, 4)
"""Learning rates to try, as multiples of the first learning rate of whole models."""
NUM_STEPS = (40, 200)
DECAYS = (0.01, 0.1)
OPTIMIZERS: Mapping[str, OptimizerName] = {"LoRA-RITE": "lora-rite", "AdamW": "adamw", "Shampoo": "shampoo"}
NUM_POINTS = 2
"""Published ones, in the order in which they are named."""
UNTRAINED = 1e-12
"""A learning rate that changes nothing."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A config, by what a person calls it."""

    name: str
    recipe: Recipe


def config_of(name: str, multiple: float, num_steps: int, *, weight_decay: float = 0.0) -> Choice:
    """A member with a multiple of the first learning rate of whole models, all else as the optimizer has it."""
    arguments: dict[str, Any] = {"lr": multiple * starting_lr(num_steps), "weight_decay": weight_decay}
    decay = f", decay {weight_decay:g}" if weight_decay else ""
    recipe = Recipe(OptimizerConfig(OPTIMIZERS[name], arguments), ScheduleConfig(decay="cosine", warmup_fraction=0.05))
    return Choice(f"{name} x{multiple:g}{decay}", recipe)


def points() -> list[Choice]:
    """The published points, as they are."""
    return [
        Choice(
            f"point {point.number}",
            Recipe(
                OptimizerConfig("shampoo", dict(found.config.arguments)),
                ScheduleConfig(**found.config.schedule),
            ),
        )
        for point, found in zip(POINTS, published(), strict=True)
    ]


def losses_of(choices: Sequence[Choice], task: Task, trainers: Trainers, *, num_seeds: int) -> dict[str, list[float]]:
    """The final losses by choice and seed; infinite where one diverged."""
    started = {
        (choice.name, seed): trainers.start(task.config(choice.recipe, seed=seed))
        for choice, seed in itertools.product(choices, range(num_seeds))
    }
    return {choice.name: [started[choice.name, seed].result().final for seed in range(num_seeds)] for choice in choices}


def measured(task: Task, trainers: Trainers, *, names: Sequence[str], num_seeds: int) -> dict[str, list[float]]:
    """All final losses of one length: the grids, decays beside the best multiple of each member, and the points."""
    untrained = Choice("untrained", Recipe(OptimizerConfig("adamw", {"lr": UNTRAINED}), ScheduleConfig(decay="cosine")))
    grid = [config_of(name, multiple, task.num_steps) for name in names for multiple in MULTIPLES]
    found = losses_of([untrained, *points()[:NUM_POINTS], *grid], task, trainers, num_seeds=num_seeds)
    decayed = []
    for name in names:
        of_name = [(statistics.fmean(found[f"{name} x{multiple:g}"]), multiple) for multiple in MULTIPLES]
        decayed += [config_of(name, min(of_name)[1], task.num_steps, weight_decay=decay) for decay in DECAYS]
    return {**found, **losses_of(decayed, task, trainers, num_seeds=num_seeds)}


def shares_of_gain(losses: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """For each choice the share of the greatest gain over the untrained loss; a diverged run has gained nothing."""
    means = {name: statistics.fmean(of_seeds) for name, of_seeds in losses.items()}
    start, least = means["untrained"], min(means.values())
    return {
        name: (start - mean) / (start - least) if math.isfinite(mean) else 0.0
        for name, mean in means.items()
        if name != "untrained"
    }


def main() -> None:
    """Trains the grids that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--optimizers", nargs="+", choices=list(OPTIMIZERS), default=list(OPTIMIZERS))
    parser.add_argument("--num-steps", nargs="+", type=int, default=list(NUM_STEPS), metavar="N")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--directory", type=Path, help="where model and text go; one that has them is used as it is")
    parser.add_argument("--log", type=Path, help="a line of JSON for each run, as soon as it is there")
    parser.add_argument("--json", type=Path, help="file for the result")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.quick:
        given.num_steps, given.seeds, given.optimizers = [4], 1, ["LoRA-RITE"]
    torch.set_num_threads(1)
    log = None if given.log is None else RunLog(given.log)
    rows: list[list[Cell]] = []
    ratios: dict[str, float] = {}
    figures: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as temporary, Trainers(given.processes, log=log) as trainers:
        directory = given.directory or Path(temporary)
        options = options_of(directory) if (directory / "model").is_dir() else _prepared(directory)
        for num_steps in given.num_steps:
            task = Task(WORKLOAD, num_steps, 1, options={**options, "max_validation_examples": NUM_VALIDATED})
            losses = measured(task, trainers, names=given.optimizers, num_seeds=given.seeds)
            shares = shares_of_gain(losses)
            figures[str(num_steps)] = {name: list(map(_finite, of_seeds)) for name, of_seeds in losses.items()}
            rows += [[num_steps, name, statistics.fmean(losses[name]), share] for name, share in shares.items()]
            ratios |= {f"share_of_gain.{name}.{num_steps}": share for name, share in shares.items()}
    columns = ["steps", "what", "loss", "share of the gain"]
    report("adapter_values", columns=columns, rows=rows, figures=figures, ratios=ratios, json_file=given.json)


def _prepared(directory: Path) -> dict[str, Any]:
    text = "\n".join(path.read_text() for path in sorted(Path(email.__file__).parent.glob("*.py")))
    source = directory / "source"
    source.mkdir()
    (source / "email.txt").write_text(text)
    return adapters_to_train(directory, sizes=SIZES, num_steps=NUM_STEPS_BEFORE, source=source, max_bytes=NUM_BYTES)


def _finite(loss: float) -> float:
    return loss if math.isfinite(loss) else 1e9


if __name__ == "__main__":
    main()
