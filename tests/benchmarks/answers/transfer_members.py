"""Which member of Shampoo's family to try first on a model that was never tuned.

    python -m tests.benchmarks.answers.transfer_members                    # from the shipped table alone
    python -m tests.benchmarks.answers.transfer_members --train            # with trainings of the answers (minutes)
    python -m tests.benchmarks.answers.transfer_members --train --unlike   # knowing no model of the same data

Each model of the shipped table is held out in turn.

- `tuned_PRESET_over_best`: the best value of a preset's search of 24 trials, by one seed, over the least of all four
  members and AdamW: the geometric mean over models;
- `tuned_first_over_best`: the same of the member that the service would put first (`promise_of_presets`) by what it
  knows of the other models;
- `MEMBER_over_best` (with `--train`): the loss of the config that all other models say together (`pooled_trials`, with
  hyperparameters of these alone), trained with new seeds, over the least of the four, likewise;
- `first_over_best` (with `--train`): the same of the member that is put first.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from service.scheduler.policy.pooled_trials import promise_of_presets
from service.transfer.candidates import ShippedMember, shipped_members
from service.transfer.pooled import PoolMember
from service.transfer.situation import FAMILY_MEMBERS
from tests.benchmarks.answers.transfer import PENALTY, answers_for, loss_ratio, trained
from tests.benchmarks.report import Cell, report
from tests.benchmarks.search.make_knowledge import MEMBERS, PRESETS, Member


def trained_ratios(
    made: Member, own: Mapping[str, ShippedMember], known: Sequence[ShippedMember], *, num_seeds: int
) -> list[float]:
    """The loss of each member's answer for a model over the least of them.

    Args:
        own: the model's rows of the table, by preset.
        known: the rows of the models that answer.
    """
    losses = []
    for name in FAMILY_MEMBERS:
        _, pooled = answers_for(own[name], [one for one in known if one.preset == name])
        losses.append(trained(dataclasses.replace(made, preset=name), pooled.config, num_seeds=num_seeds))
    least = min(losses, key=lambda values: statistics.fmean(map(math.log, values)))
    return [min(loss_ratio(values, least), PENALTY) for values in losses]


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", nargs="+", metavar="NAME", help="models that are held out; by default all")
    parser.add_argument("--train", action="store_true", help="train the answers, too")
    parser.add_argument("--unlike", action="store_true", help="know models of other data alone")
    parser.add_argument("--seeds", type=int, default=2, help="seeds of each training")
    parser.add_argument("--json", type=Path, help="file for the result")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[list[Cell]] = []
    firsts: list[str] = []
    tuned: dict[str, list[float]] = {name: [] for name in PRESETS}
    answered: dict[str, list[float]] = {name: [] for name in FAMILY_MEMBERS}
    for made in MEMBERS:
        if made.name not in (given.members or [one.name for one in MEMBERS]):
            continue
        own = {one.preset: one for one in shipped_members() if one.name == made.name}
        known = [
            one
            for one in shipped_members()
            if one.preset in FAMILY_MEMBERS
            and one.name != made.name
            and not (given.unlike and one.workload == made.workload)
        ]
        promises = promise_of_presets([PoolMember.of(one) for one in known], own["shampoo"].situation)
        firsts.append(max(promises, key=lambda name: promises[name]))
        values = {name: own[name].best.value or math.inf for name in PRESETS}
        for name in PRESETS:
            tuned[name].append(values[name] / min(values.values()))
        row: list[Cell] = [made.name, firsts[-1], *(tuned[name][-1] for name in PRESETS)]
        if given.train:
            ratios = trained_ratios(made, own, known, num_seeds=given.seeds)
            for name, ratio in zip(FAMILY_MEMBERS, ratios, strict=True):
                answered[name].append(ratio)
            row += ratios
        rows.append(row)
        print(*row, flush=True)
    mean = statistics.geometric_mean
    found = {f"tuned_{name}_over_best": mean(tuned[name]) for name in PRESETS}
    found["tuned_first_over_best"] = mean(tuned[name][place] for place, name in enumerate(firsts))
    if given.train:
        found |= {f"{name}_over_best": mean(answered[name]) for name in FAMILY_MEMBERS}
        found["first_over_best"] = mean(answered[name][place] for place, name in enumerate(firsts))
    columns = ["model", "first", *(f"tuned {name}" for name in PRESETS)]
    report(
        "transfer_members",
        columns=[*columns, *(FAMILY_MEMBERS if given.train else ())],
        rows=rows,
        figures={"first": firsts, "tuned": tuned, "answered": answered},
        ratios=found,
        json_file=given.json,
    )


if __name__ == "__main__":
    main()
