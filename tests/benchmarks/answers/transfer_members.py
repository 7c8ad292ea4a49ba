"""Which member of Shampoo's family to try first on a model that was never tuned.

    python -m tests.benchmarks.answers.transfer_members                    # from the shipped table alone
    python -m tests.benchmarks.answers.transfer_members --train            # with trainings of the answers (minutes)
    python -m tests.benchmarks.answers.transfer_members --train --unlike   # knowing no model of the same data
    python -m tests.benchmarks.answers.transfer_members --train --every 10 # and with rarer refreshes

Each model of the shipped table is held out in turn.

- `tuned_PRESET_over_best`: the best value of a preset's search of 24 trials, by one seed, over the least of all four
  members and AdamW: the geometric mean over models;
- `tuned_first_over_best`: the same of the member that the service would put first (`compared_presets`) by what it
  knows of the other models;
- `MEMBER_over_best` (with `--train`): the loss of the config that all other models say together (`pooled_trials`, with
  hyperparameters of these alone), trained with new seeds, over the least of the four, likewise;
- `first_over_best` (with `--train`): the same of the member that is put first;
- `MEMBER_rarer_over_answer` (with `--every`): the loss of that config with refreshes only every so many steps, over its
  own, for models for which it refreshes more often; `num_MEMBER_rarer`: how many these are.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from service.transfer.candidates import ShippedMember, shipped_members
from service.transfer.pooled import PoolMember
from service.transfer.promise import compared_presets
from service.transfer.situation import FAMILY_MEMBERS
from tests.benchmarks.answers.transfer import PENALTY, answers_for, loss_ratio, trained
from tests.benchmarks.report import Cell, report
from tests.benchmarks.search.make_knowledge import MEMBERS, PRESETS, Member


def trained_ratios(
    made: Member,
    own: Mapping[str, ShippedMember],
    known: Sequence[ShippedMember],
    *,
    num_seeds: int,
    every: int | None = None,
) -> tuple[list[float], list[float | None]]:
    """The loss of each member's answer for a model over the least of them, and that of each with rarer refreshes over
    its own, None if it has no more of them.

    Args:
        own: the model's rows of the table, by preset.
        known: the rows of the models that answer.
        every: the steps between rarer refreshes; None: they are not trained.
    """
    losses: list[list[float]] = []
    rarer: list[float | None] = []
    for name in FAMILY_MEMBERS:
        _, pooled = answers_for(own[name], [one for one in known if one.preset == name])
        member, config = dataclasses.replace(made, preset=name), pooled.config
        losses.append(trained(member, config, num_seeds=num_seeds))
        if every is None or config.arguments.get("precondition_frequency", every) >= every:
            rarer.append(None)
            continue
        config = dataclasses.replace(config, arguments={**config.arguments, "precondition_frequency": every})
        rarer.append(min(loss_ratio(trained(member, config, num_seeds=num_seeds), losses[-1]), PENALTY))
    least = min(losses, key=lambda values: statistics.fmean(map(math.log, values)))
    return [min(loss_ratio(values, least), PENALTY) for values in losses], rarer


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", nargs="+", metavar="NAME", help="models that are held out; by default all")
    parser.add_argument("--train", action="store_true", help="train the answers, too")
    parser.add_argument("--unlike", action="store_true", help="know models of other data alone")
    parser.add_argument("--every", type=int, metavar="STEPS", help="train them with refreshes as rare as that, too")
    parser.add_argument("--seeds", type=int, default=2, help="seeds of each training")
    parser.add_argument("--json", type=Path, help="file for the result")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[list[Cell]] = []
    firsts: list[str] = []
    tuned: dict[str, list[float]] = {name: [] for name in PRESETS}
    answered: dict[str, list[float]] = {name: [] for name in FAMILY_MEMBERS}
    rarer: dict[str, list[float]] = {name: [] for name in FAMILY_MEMBERS}
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
        compared = compared_presets([PoolMember.of(one) for one in known], own["shampoo"].situation)
        assert compared is not None
        firsts.append(compared.presets[0].preset)
        values = {name: own[name].best.value or math.inf for name in PRESETS}
        for name in PRESETS:
            tuned[name].append(values[name] / min(values.values()))
        row: list[Cell] = [made.name, firsts[-1], *(tuned[name][-1] for name in PRESETS)]
        if given.train:
            ratios, of_rarer = trained_ratios(made, own, known, num_seeds=given.seeds, every=given.every)
            for name, ratio, one in zip(FAMILY_MEMBERS, ratios, of_rarer, strict=True):
                answered[name].append(ratio)
                rarer[name] += [] if one is None else [one]
            row += ratios
            row += ["" if one is None else one for one in of_rarer] if given.every else []
        rows.append(row)
        print(*row, flush=True)
    mean = statistics.geometric_mean
    found = {f"tuned_{name}_over_best": mean(tuned[name]) for name in PRESETS}
    found["tuned_first_over_best"] = mean(tuned[name][place] for place, name in enumerate(firsts))
    if given.train:
        found |= {f"{name}_over_best": mean(answered[name]) for name in FAMILY_MEMBERS}
        found["first_over_best"] = mean(answered[name][place] for place, name in enumerate(firsts))
        found |= {f"{name}_rarer_over_answer": mean(ratios) for name, ratios in rarer.items() if ratios}
        found |= {f"num_{name}_rarer": float(len(ratios)) for name, ratios in rarer.items() if ratios}
    columns = ["model", "first", *(f"tuned {name}" for name in PRESETS)]
    columns += FAMILY_MEMBERS if given.train else ()
    columns += (f"rarer {name}" for name in FAMILY_MEMBERS if given.train and given.every)
    report(
        "transfer_members",
        columns=columns,
        rows=rows,
        figures={"first": firsts, "tuned": tuned, "answered": answered, "rarer": rarer},
        ratios=found,
        json_file=given.json,
    )


if __name__ == "__main__":
    main()
