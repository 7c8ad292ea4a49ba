"""Trains random configurations of several presets, each with several seeds, and keeps their curves.

The tables are what whole jobs are simulated on: `recommendation_regret` takes those of Shampoo and AdamW, `family_cost`
those of the family's members. One process, one thread; each finished configuration is appended to a journal beside the
table, so a run that was killed goes on where it stopped. Configuration `n` is a function of the table, the side and `n`
alone.

    python -m tests.benchmarks.search.make_seed_curves digits-mlp
    python -m tests.benchmarks.search.make_seed_curves digits-convnet
    python -m tests.benchmarks.search.make_seed_curves digits-mlp-family
    python -m tests.benchmarks.search.make_seed_curves digits-convnet-family
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from search_spaces import FAMILY_PRESETS, Scalar, preset
from shampoo.step.failures import RefreshFailed
from tests.benchmarks.search.curve_tables import DATA
from tests.benchmarks.search.make_curves import OBJECTIVE, read_journal
from tests.benchmarks.search.seed_tables import SIDES, SeedRow, SeedTable, write_seed_table
from trainers.config import Diverged, OptimizerConfig, ScheduleConfig, TrialConfig
from trainers.loop import train
from trainers.ranks.context import single_process_context


@dataclass(frozen=True, slots=True)
class Task:
    """A workload, how long and how often it is trained."""

    workload: str
    num_steps: int
    num_units: int
    """Measurements of one curve, evenly spaced."""
    batch_size: int
    num_configs: int
    """Configurations of each side."""
    num_seeds: int
    options: Mapping[str, str] = field(default_factory=dict)
    sides: Sequence[str] = SIDES
    """The presets that configurations are drawn from."""


TASKS: Mapping[str, Task] = {
    "digits-mlp": Task("digits-mlp", num_steps=40, num_units=8, batch_size=128, num_configs=128, num_seeds=8),
    "digits-convnet": Task(
        "digits-convnet",
        num_steps=60,
        num_units=6,
        batch_size=64,
        num_configs=96,
        num_seeds=8,
        options={"size": "tiny"},
    ),
    "digits-mlp-family": Task(
        "digits-mlp",
        num_steps=40,
        num_units=20,
        batch_size=128,
        num_configs=160,
        num_seeds=3,
        sides=tuple(FAMILY_PRESETS),
    ),
    "digits-convnet-family": Task(
        "digits-convnet",
        num_steps=40,
        num_units=20,
        batch_size=64,
        num_configs=50,
        num_seeds=3,
        options={"size": "tiny"},
        sides=tuple(FAMILY_PRESETS),
    ),
}


def train_curve(task: Task, side: str, parameters: Mapping[str, Scalar], seed: int) -> tuple[float, ...] | None:
    """The validation losses of one training; None: it diverged."""
    assigned = preset(side).assign(parameters)
    config = TrialConfig(
        workload=task.workload,
        workload_options=task.options,
        optimizer=OptimizerConfig(assigned.optimizer, assigned.optimizer_arguments),
        schedule=ScheduleConfig(**assigned.schedule),
        num_steps=task.num_steps,
        evaluate_every=task.num_steps // task.num_units,
        batch_size=task.batch_size,
        max_loss=1e3,
        seed=seed,
        **assigned.training,
    )
    try:
        curve = [measurement.metrics[OBJECTIVE] for measurement in train(config, single_process_context())]
    except (Diverged, RefreshFailed):
        return None
    return tuple(float(format(value, ".5g")) for value in curve) if math.isfinite(curve[-1]) else None


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("task", choices=sorted(TASKS))
    name = arguments.parse_args().task
    torch.set_num_threads(1)
    task, path = TASKS[name], DATA / f"{name}.seeds.journal.jsonl"
    trained = read_journal(path)
    # Cut off what was half written.
    path.write_text("".join(json.dumps(row) + "\n" for row in trained))
    with path.open("a") as journal:
        for number in range(len(trained), task.num_configs * len(task.sides)):
            side = task.sides[number % len(task.sides)]
            parameters = preset(side).sample(random.Random(f"{name}/{side}/{number}"))
            curves = [train_curve(task, side, parameters, seed) for seed in range(task.num_seeds)]
            journal.write(json.dumps(SeedRow(side, parameters, tuple(curves)).to_json()) + "\n")
            journal.flush()
    rows = [SeedRow.from_json(row) for row in read_journal(path)]
    size = write_seed_table(name, SeedTable({side: preset(side) for side in task.sides}, rows))
    print(f"{name}: {len(rows)} configurations of {task.num_seeds} seeds, {size} bytes")


if __name__ == "__main__":
    main()
