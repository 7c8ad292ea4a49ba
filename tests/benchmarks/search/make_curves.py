"""Trains random configurations of a Shampoo search space and keeps their learning curves as a table.

The tables are what `search_quality` simulates search policies on. One process, one thread; each finished configuration
is appended to a journal beside the table, so a run that was killed goes on where it stopped. Configuration `n` is a
function of the task and `n` alone.

    python -m tests.benchmarks.search.make_curves digits-convnet --num-configs 1000
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from search_spaces import Categorical, Float, Integer, Parameter, Scalar, SearchSpace
from shampoo.step.failures import RefreshFailed
from tests.benchmarks.search.curve_tables import DATA, Row, write_table
from trainers.config import Diverged, OptimizerConfig, ScheduleConfig, TrialConfig
from trainers.loop import train
from trainers.ranks.context import single_process_context

OBJECTIVE = "validation_loss"


@dataclass(frozen=True, slots=True)
class Task:
    """A workload, how long it is trained, and the space its configurations are drawn from."""

    workload: str
    num_steps: int
    num_units: int
    """Measurements of one curve, evenly spaced."""
    batch_size: int
    space: SearchSpace
    options: Mapping[str, str | int] = field(default_factory=dict)


def _shared(*, lowest_frequency: int) -> tuple[Parameter, ...]:
    return (
        Float("weight_decay", 1e-5, 1.0, scale="log", default=1e-2),
        Float("betas[1]", 0.9, 0.999, scale="reverse_log", default=0.99),
        Integer("precondition_frequency", lowest_frequency, 50, scale="log", default=10),
        Float("schedule.warmup_fraction", 0.005, 0.3, scale="log", default=0.05),
        Categorical("schedule.decay", ("cosine", "wsd")),
        Float("schedule.decay_fraction", 0.05, 0.8, default=0.2, when={"schedule.decay": ("wsd",)}),
    )


CONVNET_SPACE = SearchSpace(
    optimizer="shampoo",
    parameters=(
        Categorical("grafting", ("adam", "sgd")),
        Float("lr", 1e-4, 1e-1, scale="log", default=1.5e-3, when={"grafting": ("adam",)}),
        Float("lr", 1e-3, 10.0, scale="log", default=0.1, when={"grafting": ("sgd",)}),
        Float("betas[0]", 0.5, 0.99, scale="reverse_log", default=0.95, when={"grafting": ("adam",)}),
        Float("momentum", 0.5, 0.99, scale="reverse_log", default=0.9, when={"grafting": ("sgd",)}),
        Float("epsilon", 1e-10, 1e-2, scale="log", default=1e-6),
        *_shared(lowest_frequency=3),
    ),
    fixed={"weight_decay_type": "decoupled"},
)
"""Wider than the presets, and both of Shampoo's at once, so that some configurations diverge."""

GPT_SPACE = SearchSpace(
    optimizer="shampoo",
    parameters=(
        Categorical("preconditioner", ("shampoo", "soap")),
        Float("lr", 1e-4, 1e-1, scale="log", default=3e-3),
        Float("betas[0]", 0.5, 0.99, scale="reverse_log", default=0.95),
        Float("epsilon", 1e-10, 1e-2, scale="log", default=1e-6, when={"preconditioner": ("shampoo",)}),
        Categorical("grafting", ("adam", "rmsprop"), when={"preconditioner": ("shampoo",)}),
        *_shared(lowest_frequency=3),
    ),
    fixed={"weight_decay_type": "decoupled", "max_preconditioner_dim": 64},
)

AUTOENCODER_SPACE = SearchSpace(
    optimizer="shampoo",
    parameters=(
        Categorical("preconditioner", ("soap", "kl")),
        Float("lr", 1e-4, 1e-1, scale="log", default=3e-3),
        Float("betas[0]", 0.5, 0.99, scale="reverse_log", default=0.95),
        Float("epsilon", 1e-10, 1e-2, scale="log", default=1e-6, when={"preconditioner": ("kl",)}),
        *_shared(lowest_frequency=3),
    ),
    fixed={"weight_decay_type": "decoupled"},
)
"""With KL-Shampoo, which no other table has."""

TASKS: Mapping[str, Task] = {
    "digits-autoencoder": Task(
        "digits-autoencoder",
        num_steps=100,
        num_units=20,
        batch_size=64,
        space=AUTOENCODER_SPACE,
        options={"width": 32},
    ),
    "digits-convnet": Task(
        "digits-convnet", num_steps=120, num_units=24, batch_size=64, space=CONVNET_SPACE, options={"size": "tiny"}
    ),
    "stdlib-gpt": Task(
        "tests.benchmarks.training.brief_gpt:BriefGPT", num_steps=100, num_units=20, batch_size=8, space=GPT_SPACE
    ),
}


def trial_config(task: Task, parameters: Mapping[str, Scalar]) -> TrialConfig:
    """The config of a trial of the task with these values."""
    assigned = task.space.assign(parameters)
    return TrialConfig(
        workload=task.workload,
        workload_options=task.options,
        optimizer=OptimizerConfig(assigned.optimizer, assigned.optimizer_arguments),
        schedule=ScheduleConfig(**assigned.schedule),
        num_steps=task.num_steps,
        evaluate_every=task.num_steps // task.num_units,
        batch_size=task.batch_size,
        max_loss=1e3,
    )


def train_row(task: Task, number: int) -> Row:
    """Draws configuration `number` and trains it; a curve that diverged ends where it did."""
    parameters = task.space.sample(random.Random(f"{task.workload}/{number}"))
    curve: list[float] = []
    diverged = False
    try:
        measurements = train(trial_config(task, parameters), single_process_context())
        curve.extend(measurement.metrics[OBJECTIVE] for measurement in measurements)
    except (Diverged, RefreshFailed):
        diverged = True
    if curve and not math.isfinite(curve[-1]):
        curve.pop()
        diverged = True
    return Row(parameters, tuple(float(format(value, ".5g")) for value in curve), diverged)


def _journal(name: str) -> Path:
    return DATA / f"{name}.journal.jsonl"


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The finished configurations; a last line that was cut off is left out."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")
    return [json.loads(line) for line in lines[:-1]]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("task", choices=sorted(TASKS))
    arguments.add_argument("--num-configs", type=int, default=1000)
    arguments.add_argument("--time-limit", type=float, default=math.inf, help="seconds")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    task, path = TASKS[given.task], _journal(given.task)
    trained = read_journal(path)
    # Cut off what was half written.
    path.write_text("".join(json.dumps(row) + "\n" for row in trained))
    begun = time.monotonic()
    with path.open("a") as journal:
        for number in range(len(trained), given.num_configs):
            if time.monotonic() - begun > given.time_limit:
                break
            row = train_row(task, number)
            journal.write(json.dumps(row.to_json()) + "\n")
            journal.flush()
    rows = [Row.from_json(row) for row in read_journal(path)]
    size = write_table(given.task, task.space, task.num_units, rows)
    num_diverged = sum(row.diverged for row in rows)
    print(f"{given.task}: {len(rows)} configurations, {num_diverged} diverged, {size} bytes")


if __name__ == "__main__":
    main()
