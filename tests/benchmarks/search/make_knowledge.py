"""Tunes small members of shipped families, one axis at a time, and keeps the trials as the table that ships.

A member is a workload with a width, a depth, a batch size and a number of steps; the members of a family differ in one
of them alone, so that the table shows how good settings move. Each is tuned with the presets of Shampoo's family and
with AdamW's, alike, by the service's own `auto` search, with whole trainings only. A service without jobs of its own
answers from the table (`service.transfer.candidates`), and `python -m tests.benchmarks.answers.transfer` judges the
rules by it.

One process, one thread; each finished trial is appended to a journal beside the benchmark's data, so a run that was
killed goes on where it stopped, and members can be made in several runs.

    python -m tests.benchmarks.search.make_knowledge --num-trials 24 --time-limit 3600 \\
      --table service/transfer/knowledge.json
    python -m tests.benchmarks.search.make_knowledge --presets adamw  # of this one alone; the others' rows stay
    python -m tests.benchmarks.search.make_knowledge --members mlp-long gpt-long  # likewise
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from search_spaces import Scalar, preset
from service.domain import Direction, FailureReason, TrialState
from service.scheduler.policy.searching.auto import AutoSearch
from service.scheduler.policy.searching.phase_search import New, TrialOutcome
from service.transfer.situation import FAMILY_MEMBERS
from shampoo.step.failures import RefreshFailed
from trainers.config import Diverged, OptimizerConfig, ScheduleConfig, TrialConfig
from trainers.identity.shape import model_shape
from trainers.identity.values import ModelShape
from trainers.loop import train
from trainers.ranks.context import single_process_context
from trainers.workloads.registry import load

PRESETS = (*FAMILY_MEMBERS, "adamw")
OBJECTIVE = "validation_loss"
DATA = Path(__file__).parents[1] / "data"
JOURNAL = DATA / "knowledge.journal.jsonl"
MAX_LOSS = 1e3


@dataclass(frozen=True, slots=True)
class Member:
    """A model of a family, and how long it is trained."""

    name: str
    workload: str
    batch_size: int
    num_steps: int
    options: Mapping[str, Any] = field(default_factory=dict)
    preset: str = "shampoo"

    def config(self, parameters: Mapping[str, Scalar], *, seed: int = 0) -> TrialConfig:
        """A whole training with these values of the preset's parameters."""
        assigned = preset(self.preset).assign(parameters)
        return TrialConfig(
            workload=self.workload,
            workload_options=dict(self.options),
            optimizer=OptimizerConfig(assigned.optimizer, assigned.optimizer_arguments),
            schedule=ScheduleConfig(**assigned.schedule),
            num_steps=self.num_steps,
            evaluate_every=self.num_steps,
            batch_size=self.batch_size,
            max_loss=MAX_LOSS,
            seed=seed,
        )

    @property
    def shape(self) -> ModelShape:
        """Shape of its model, which is built without weights."""
        with torch.device("meta"):
            return model_shape(load(self.workload, self.options).build_model())


MEMBERS = (
    Member("mlp", "digits-mlp", 32, 100, {"width": 32}),
    Member("mlp-wide", "digits-mlp", 32, 100, {"width": 256}),
    Member("mlp-deep", "digits-mlp", 32, 100, {"width": 32, "depth": 11}),
    Member("mlp-batch", "digits-mlp", 256, 100, {"width": 32}),
    Member("mlp-long", "digits-mlp", 32, 800, {"width": 32}),
    Member("convnet", "digits-convnet", 16, 100, {"width": 8}),
    Member("convnet-wide", "digits-convnet", 16, 100, {"width": 64}),
    Member("convnet-deep", "digits-convnet", 16, 100, {"width": 8, "depth": 12}),
    Member("convnet-long", "digits-convnet", 16, 800, {"width": 8}),
    Member("autoencoder", "digits-autoencoder", 64, 150, {"width": 32}),
    Member("autoencoder-deep", "digits-autoencoder", 64, 150, {"width": 32, "depth": 12}),
    Member("gpt", "stdlib-gpt", 8, 100, {"width": 16, "depth": 2}),
    Member("gpt-wide", "stdlib-gpt", 8, 100, {"width": 128, "depth": 2}),
    Member("gpt-long", "stdlib-gpt", 8, 400, {"width": 16, "depth": 2}),
)
"""Eightfold in width, batch size or steps (the language model fourfold), fourfold in depth; the first of a family is
its small member."""


def train_value(config: TrialConfig) -> float | None:
    """The objective at the end of a training; None: it diverged."""
    try:
        *_, last = train(config, single_process_context())
    except (Diverged, RefreshFailed):
        return None
    value = last.metrics[OBJECTIVE]
    return value if math.isfinite(value) else None


def outcome(value: float | None, step: int) -> TrialOutcome:
    """The end of a trial as a search hears of it."""
    if value is None:
        return TrialOutcome(TrialState.FAILED, FailureReason.DIVERGED, (), ())
    return TrialOutcome(TrialState.COMPLETED, None, (value,), ((step, value),))


def tune(member: Member, trained: list[dict[str, Any]], *, num_trials: int, journal: Path, until: float) -> None:
    """Adds trials of a member to the journal, up to `num_trials` of them or the time `until`; `trained` holds those
    that are there, which the search hears of first."""
    search = AutoSearch(
        preset(member.preset), direction=Direction.MINIMIZE, max_steps=member.num_steps, pauses=False, seed=0
    )
    for number, row in enumerate(trained):
        search.begin(number, row["parameters"])
        _finish(search, number, row["value"], member)
    for number in range(len(trained), num_trials):
        if time.monotonic() > until:
            return
        chosen = search.choose(number, may_start=True)
        assert isinstance(chosen, New), "without pauses there is nothing to go on with"
        value = train_value(member.config(chosen.parameters))
        _finish(search, number, value, member)
        row = {"member": member.name, "preset": member.preset, "parameters": dict(chosen.parameters), "value": value}
        trained.append(row)
        with journal.open("a") as file:
            file.write(json.dumps(row) + "\n")


def _finish(search: AutoSearch, number: int, value: float | None, member: Member) -> None:
    if value is not None:
        search.report(number, member.num_steps, value)
    search.finish(number, outcome(value, member.num_steps))


def read_journal(path: Path) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The finished trials by member and preset; a last line that was cut off is left out, in the file, too."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    path.write_text("".join(line + "\n" for line in lines))
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in map(json.loads, lines):
        found.setdefault((row["member"], row["preset"]), []).append(row)
    return found


def table_of(
    members: Sequence[Member], trained: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]
) -> list[dict[str, Any]]:
    """The table that ships: each member that was tuned, with its trials."""
    return [
        {
            "name": member.name,
            "workload": member.workload,
            "options": dict(member.options),
            "batch_size": member.batch_size,
            "num_steps": member.num_steps,
            "preset": member.preset,
            "objective": OBJECTIVE,
            "shape": member.shape.to_json(),
            "trials": [
                {
                    "value": row["value"],
                    "parameters": {name: _short(value) for name, value in row["parameters"].items()},
                }
                for row in trained[member.name, member.preset]
            ],
        }
        for member in members
        if trained.get((member.name, member.preset))
    ]


def _short(value: Scalar) -> Scalar:
    return float(format(value, ".6g")) if isinstance(value, float) else value


def main() -> None:
    """Runs the script."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--presets", nargs="+", choices=PRESETS, default=list(PRESETS))
    names = [member.name for member in MEMBERS]
    arguments.add_argument("--members", nargs="+", choices=names, default=names)
    arguments.add_argument("--num-trials", type=int, default=24, help="trials of each member")
    arguments.add_argument("--time-limit", type=float, default=3600.0, help="seconds")
    arguments.add_argument("--journal", type=Path, default=JOURNAL)
    arguments.add_argument("--table", type=Path, help="where rows go; by default nowhere")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    until = time.monotonic() + given.time_limit
    trained = read_journal(given.journal)
    chosen = [member for member in MEMBERS if member.name in given.members]
    members = [dataclasses.replace(member, preset=name) for name in given.presets for member in chosen]
    for member in members:
        own = trained.setdefault((member.name, member.preset), [])
        tune(member, own, num_trials=given.num_trials, journal=given.journal, until=until)
        values = [row["value"] for row in own if row["value"] is not None]
        print(
            f"{member.preset}, {member.name}: {len(own)} trials, best {min(values, default=math.nan):.5g}", flush=True
        )
    if given.table is not None:
        rows = table_of(members, trained)
        kept = json.loads(given.table.read_text()) if given.table.exists() else []
        made = {(row["name"], row["preset"]) for row in rows}
        rows = [*(row for row in kept if (row["name"], row["preset"]) not in made), *rows]
        text = json.dumps(rows, separators=(",", ":"))
        given.table.write_text(text.replace('{"value"', '\n{"value"') + "\n")
        print(f"{given.table}: {given.table.stat().st_size} bytes")


if __name__ == "__main__":
    main()
