"""Which member of Shampoo's family to try first on a model that was never tuned.

    python -m tests.benchmarks.answers.transfer_members            # minutes
    python -m tests.benchmarks.answers.transfer_members --unlike   # knowing no model of the same data

Each model of the shipped table is held out in turn. For each member of the family, the config that all other models of
the table say together (`pooled_trials`) is trained on it with new seeds. The hyperparameters of the common model are
those of the other models alone. It prints the losses over the least of the four, and

- `first_over_best`: the geometric mean of the loss of the member that the service would put first
  (`promise_of_presets`) over the least loss;
- `MEMBER_over_best`: the same if that member were always the first;
- `tuned_first_over_best`: the same of the values of the table, each the best of a search of its own, of the member that
  the service would put first.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
from pathlib import Path

import torch

from service.scheduler.policy.pooled_trials import promise_of_presets
from service.transfer.candidates import shipped_members
from service.transfer.pooled import PoolMember
from service.transfer.situation import FAMILY_MEMBERS
from tests.benchmarks.answers.transfer import PENALTY, answers_for, loss_ratio, trained
from tests.benchmarks.report import Cell, report
from tests.benchmarks.search.make_knowledge import MEMBERS


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", nargs="+", metavar="NAME", help="models that are held out; by default all")
    parser.add_argument("--unlike", action="store_true", help="know models of other data alone")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each training")
    parser.add_argument("--json", type=Path, help="file for the result")
    given = parser.parse_args()
    torch.set_num_threads(1)
    table = [one for one in shipped_members() if one.preset in FAMILY_MEMBERS]
    rows: list[list[Cell]] = []
    firsts, tuned_firsts, over_best = [], [], {name: list[float]() for name in FAMILY_MEMBERS}
    for made in MEMBERS:
        if made.name not in (given.members or [one.name for one in MEMBERS]):
            continue
        own = {one.preset: one for one in table if one.name == made.name}
        target = own["shampoo"].situation
        known = [one for one in table if one.name != made.name and not (given.unlike and one.workload == made.workload)]
        promises = promise_of_presets([PoolMember.of(one) for one in known], target)
        losses = {}
        for name, member in own.items():
            _, pooled = answers_for(member, [one for one in known if one.preset == name])
            losses[name] = trained(dataclasses.replace(made, preset=name), pooled.config, num_seeds=given.seeds)
        least = min(losses.values(), key=lambda values: statistics.fmean(map(math.log, values)))
        ratios = {name: min(loss_ratio(values, least), PENALTY) for name, values in losses.items()}
        tuned = {name: one.best.value or math.inf for name, one in own.items()}
        first = max(FAMILY_MEMBERS, key=lambda name: promises[name])
        firsts.append(ratios[first])
        tuned_firsts.append(tuned[first] / min(tuned.values()))
        for name in FAMILY_MEMBERS:
            over_best[name].append(ratios[name])
        told = [promises[name] for name in FAMILY_MEMBERS]
        rows.append([made.name, first, *(ratios[name] for name in FAMILY_MEMBERS), *told])
        rows[-1] += [tuned[name] / min(tuned.values()) for name in FAMILY_MEMBERS]
        print(*rows[-1], flush=True)
    mean = statistics.geometric_mean
    report(
        "transfer_members",
        columns=[
            "model",
            "first",
            *FAMILY_MEMBERS,
            *(f"promise of {name}" for name in FAMILY_MEMBERS),
            *(f"tuned {name}" for name in FAMILY_MEMBERS),
        ],
        rows=rows,
        figures={"first": firsts, "tuned_first": tuned_firsts, "over_best": over_best},
        ratios={
            "first_over_best": mean(firsts),
            "tuned_first_over_best": mean(tuned_firsts),
            **{f"{name}_over_best": mean(over_best[name]) for name in FAMILY_MEMBERS},
        },
        json_file=given.json,
    )


if __name__ == "__main__":
    main()
