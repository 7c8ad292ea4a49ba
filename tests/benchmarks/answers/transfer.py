"""How well tuned configs move to models that were not tuned: the rules, and searches that begin with them.

    python -m tests.benchmarks.answers.transfer                 # from the shipped table alone
    python -m tests.benchmarks.answers.transfer --train         # and with trainings of the moved configs (minutes)
    python -m tests.benchmarks.answers.transfer --train --fields --members mlp-long  # and which field costs how much
    python -m tests.benchmarks.answers.transfer --train --seeded 8   # and searches of 8 trials that begin with them
    python -m tests.benchmarks.answers.transfer --train --seeded 8 --begin nearest together  # in pairs: see below
    python -m tests.benchmarks.answers.transfer --train --unlike     # and of members of other data alone
    python -m tests.benchmarks.answers.transfer --preset adamw  # the same of AdamW

The shipped table (`make_knowledge`) has families of which a small member and others, wider, deeper, with a larger
batch or a longer training, were tuned alike. Each other member is held out in turn, and the small one's best config is
moved to it, with the weight decay that it has together with the others of its family (`ranking.with_common_decay`):

- `lr_factor`: the moved learning rate over that of the member's own optimum, which is the geometric mean of the
  learning rates of its best four trials; `within_two`: the share of members where it is within a factor of two, and as
  much without any rule; `in_interval`: the share of members whose optimum the 80% interval holds;
- `loss_ratio` (with `--train`): the moved config's final loss over that of the re-tuned one, trained alike and with the
  same new seeds, of which neither is the lucky one that the re-tuned one was chosen by: the geometric mean over
  `--seeds`; `noise`: its standard error, as a factor; `seed_noise`: the standard deviation of the re-tuned one's loss
  by one seed, likewise, with its median as `retuned_loss_over_itself`;
- `pooled`: as much of the answer of the service, what all other members of the table say together (`pooled_trials`),
  whose model was fitted without the held-out one; `over_nearest`: its loss over that of the one that is nearest, of
  whatever data, alone, as the service would have it without the others; with `--unlike` neither knows of a member of
  the same data, as most models that people ask for are like none of the table;
- `fields` (with `--fields`): the same ratio with one field of the moved config at a time as the re-tuned one has it;
- `seeded trials` (with `--seeded`): the trials that a search which begins with the nearest other members, moved, takes
  to reach the final value of the one that knew nothing; `seeded_over_unseeded_trials`: the median of them, over the
  trials of that; its value is the best of all its trials by one seed, so a good part of it is luck;
- `winner ratio` (with both): the best config of that search, of so many trials, over the best one of the search that
  knew nothing, of all its trials, both trained again with the same new seeds;
- `together` (with `--begin nearest together`): the same of a search which begins with what all other members say
  together, and then with the nearest, as many configs in all; `together_over_nearest_winner_loss` and, of the values
  that the searches themselves saw, `together_over_nearest_first_value` and `together_over_nearest_best_value` compare
  the two in pairs, as geometric means.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

import torch

from search_spaces import preset
from search_spaces.fitting import fit
from service.domain import Direction
from service.scheduler.policy.pooled_trials import fitted, pooled_answer
from service.scheduler.policy.searching.auto import AutoSearch
from service.scheduler.policy.searching.phase_search import New
from service.scheduler.policy.searching.search_prior import KnownConfig
from service.transfer.candidates import ShippedMember, shipped_members
from service.transfer.known import MAX_KNOWN, known_of
from service.transfer.pooled import PoolMember
from service.transfer.ranking import Transferred, together, transferred, with_common_decay
from service.transfer.rules import TunedConfig
from service.transfer.situation import distance
from tests.benchmarks.report import Cell, report
from tests.benchmarks.search.make_knowledge import MEMBERS, PRESETS, Member, outcome, train_value
from trainers.config import OptimizerConfig, ScheduleConfig, TrialConfig

BEGINNINGS = ("nearest", "together")
"""The configs that a search begins with: those of the nearest others alone, or first what all others say together."""
NUM_BEST = 4
"""Trials whose learning rates are a member's optimum: the best one alone is a matter of luck."""
PENALTY = 10.0
"""Loss ratio of a config that diverges."""


def best_lr(member: ShippedMember) -> float:
    """The optimum of a member's learning rate."""
    finished = sorted((trial.value, trial.parameters["lr"]) for trial in member.trials if trial.value is not None)
    return math.exp(statistics.fmean(math.log(lr) for _, lr in finished[:NUM_BEST]))


def small_of(member: ShippedMember, members: list[ShippedMember]) -> ShippedMember | None:
    """The family's member from which others are moved; None: it is that itself."""
    small = next(other for other in members if other.workload == member.workload)
    return None if small is member else small


def drawn_to(member: ShippedMember, small: ShippedMember, members: Sequence[ShippedMember]) -> Transferred:
    """The small member's config, moved, with the weight decay that all but the held-out one have together."""
    sources = [other for other in members if other not in (member, small)]
    all_moved = [transferred(other.candidate().config, other.candidate(), member.situation) for other in sources]
    return with_common_decay(moved_to(member, small), all_moved, member.situation)


def moved_to(member: ShippedMember, small: ShippedMember) -> Transferred:
    """The small member's best config, with its optimum of the learning rate, for another one."""
    candidate = small.candidate()
    arguments = {**candidate.config.arguments, "lr": best_lr(small)}
    config = TunedConfig(candidate.config.optimizer, arguments, candidate.config.schedule)
    return transferred(config, candidate, member.situation)


def answers_for(member: ShippedMember, members: Sequence[ShippedMember]) -> tuple[Transferred, Transferred]:
    """The config of the nearest other member alone, and what all others say together, as the service has them."""
    others = sorted(
        (other for other in members if other is not member),
        key=lambda other: distance(other.situation, member.situation).total,
    )
    all_moved = [transferred(other.candidate().config, other.candidate(), member.situation) for other in others]
    tuned = [with_common_decay(found, all_moved, member.situation) for found in all_moved]
    asked = list(map(PoolMember.of, others))
    pooled = pooled_answer(asked, member.situation, hyperparameters=fitted(asked))
    return tuned[0], together(pooled, tuned)


def trained(member: Member, config: TunedConfig, *, num_seeds: int) -> list[float]:
    """The final losses with new seeds; infinite where one diverged."""
    defaults = member.config(preset(member.preset).defaults())
    optimizer = OptimizerConfig(preset(member.preset).optimizer, dict(config.arguments))
    schedule = ScheduleConfig(**config.schedule)
    return _with_new_seeds(dataclasses.replace(defaults, optimizer=optimizer, schedule=schedule), num_seeds)


def _with_new_seeds(config: TrialConfig, num_seeds: int) -> list[float]:
    values = [train_value(dataclasses.replace(config, seed=seed)) for seed in range(1, num_seeds + 1)]
    return [math.inf if value is None else value for value in values]


@dataclasses.dataclass(frozen=True, slots=True)
class SeededSearch:
    """A search that began with the other members of the table."""

    needed: float
    """Trials that it took to reach what the held-out member's own search found; infinite: more than it had."""
    best: TrialConfig | None
    """The config of its best trial; None: all diverged."""
    first_value: float
    """The value of its first trial; infinite: that diverged."""
    best_value: float
    """The value of its best trial, by the one seed of the search; infinite: all diverged."""


def known_for(
    held_out: ShippedMember, others: Sequence[ShippedMember], pooled: Transferred | None
) -> list[KnownConfig]:
    """The configs that a search of the held-out member begins with: the nearest others', as a job has them, and before
    these what all say together, if that is given."""
    space = preset(held_out.preset)
    nearest = known_of(space, [other.candidate() for other in others], held_out.situation)
    known = [KnownConfig(one.parameters, one.distance) for one in nearest]
    if pooled is None:
        return known
    searched = {parameter.name for parameter in space.parameters}
    fitted_to_space = fit(space, {name: value for name, value in pooled.config.flat.items() if name in searched})
    assert fitted_to_space is not None, "a config of the preset stays one"
    assert pooled.distance is not None, "it was tuned for models"
    return [KnownConfig(fitted_to_space[0], pooled.distance.total), *known][:MAX_KNOWN]


def seeded_search(
    member: Member, held_out: ShippedMember, known: Sequence[KnownConfig], *, num_trials: int
) -> SeededSearch:
    """A search of the held-out member, which begins with known configs."""
    space = preset(member.preset)
    search = AutoSearch(
        space, direction=Direction.MINIMIZE, max_steps=member.num_steps, pauses=False, seed=1, known=known
    )
    assert held_out.best.value is not None
    needed, best, first_value, best_value = math.inf, None, math.inf, math.inf
    for number in range(num_trials):
        chosen = search.choose(number, may_start=True)
        assert isinstance(chosen, New)
        config = member.config(chosen.parameters)
        value = train_value(config)
        if value is not None:
            search.report(number, member.num_steps, value)
            if number == 0:
                first_value = value
            if value <= held_out.best.value:
                needed = min(needed, number + 1)
            if value < best_value:
                best, best_value = config, value
        search.finish(number, outcome(value, member.num_steps))
    return SeededSearch(needed, best, first_value, best_value)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=PRESETS, default="shampoo")
    parser.add_argument("--members", nargs="+", metavar="NAME", help="members that are held out; by default all")
    parser.add_argument("--train", action="store_true", help="train the moved configs and the re-tuned ones")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of each of these trainings")
    parser.add_argument(
        "--unlike", action="store_true", help="`pooled`, the nearest and searches: of members of other data alone"
    )
    parser.add_argument("--fields", action="store_true", help="with --train: and with each field as re-tuned")
    parser.add_argument("--seeded", type=int, default=0, metavar="TRIALS", help="run searches of so many trials, too")
    parser.add_argument(
        "--begin", nargs="+", choices=BEGINNINGS, default=BEGINNINGS[:1], help="with --seeded: what searches begin with"
    )
    parser.add_argument("--json", type=Path, help="file for the result")
    given = parser.parse_args()
    if given.fields and not given.train:
        parser.error("--fields needs --train")
    torch.set_num_threads(1)
    members = [member for member in shipped_members() if member.preset == given.preset]
    made = {member.name: dataclasses.replace(member, preset=given.preset) for member in MEMBERS}
    rows: list[list[Cell]] = []
    factors, plain_factors, held, losses, noise = [], [], [], [], []
    searches: dict[str, list[SeededSearch]] = {begin: [] for begin in given.begin}
    winners: dict[str, list[float]] = {begin: [] for begin in given.begin}
    num_unseeded: list[int] = []
    pooled_factors, pooled_held, pooled_losses, nearest_losses, over_nearest = [], [], [], [], []
    fields: dict[str, dict[str, float]] = {}
    for member in members:
        small = small_of(member, members)
        if small is None or member.name not in (given.members or made):
            continue
        moved, optimum = drawn_to(member, small, members), best_lr(member)
        lr = moved.config.arguments["lr"]
        interval = next(one for one in moved.intervals if one.name == "lr")
        factors.append(lr / optimum)
        plain_factors.append(best_lr(small) / optimum)
        held.append(interval.low <= optimum <= interval.high)
        own: list[float] = []
        known = [other for other in members if not given.unlike or other.workload != member.workload]
        nearest, pooled = answers_for(member, known)
        pooled_factors.append(pooled.config.arguments["lr"] / optimum)
        interval = next(one for one in pooled.intervals if one.name == "lr")
        pooled_held.append(interval.low <= optimum <= interval.high)
        row: list[Cell] = [member.name, best_lr(small), lr, optimum, lr / optimum, "yes" if held[-1] else "no"]
        row += [pooled_factors[-1], "yes" if pooled_held[-1] else "no"]
        if given.train:
            own = trained(made[member.name], member.candidate().config, num_seeds=given.seeds)
            found = trained(made[member.name], moved.config, num_seeds=given.seeds)
            losses.append(loss_ratio(found, own))
            noise.append(seed_noise(own))
            of_pooled = trained(made[member.name], pooled.config, num_seeds=given.seeds)
            of_nearest = trained(made[member.name], nearest.config, num_seeds=given.seeds)
            pooled_losses.append(loss_ratio(of_pooled, own))
            nearest_losses.append(loss_ratio(of_nearest, own))
            over_nearest.append(loss_ratio(of_pooled, of_nearest))
            row += [losses[-1], ratio_noise(found, own), noise[-1], pooled_losses[-1], ratio_noise(of_pooled, own)]
            row += [nearest_losses[-1], over_nearest[-1], ratio_noise(of_pooled, of_nearest)]
        if given.fields:
            replaced = with_own_fields(moved.config, member.candidate().config)
            fields[member.name] = {
                name: loss_ratio(trained(made[member.name], config, num_seeds=given.seeds), own)
                for name, config in replaced.items()
            }
            row.append(", ".join(f"{name} {ratio:.2f}" for name, ratio in fields[member.name].items()))
        if given.seeded:
            num_unseeded.append(len(member.trials))
        for begin in given.begin if given.seeded else ():
            others = [other for other in known if other is not member]
            beginning = known_for(member, others, pooled if begin == "together" else None)
            search = seeded_search(made[member.name], member, beginning, num_trials=given.seeded)
            searches[begin].append(search)
            row.append(search.needed if math.isfinite(search.needed) else f"> {given.seeded}")
            if given.train:
                found = [math.inf] if search.best is None else _with_new_seeds(search.best, given.seeds)
                winners[begin].append(loss_ratio(found, own))
                row.append(winners[begin][-1])
        rows.append(row)
        print(*row, flush=True)
    figures = {"num_members": len(rows), "members": [row[0] for row in rows], "lr_factors": factors, "loss": losses}
    ratios = {
        "lr_within_two": _share(factors),
        "lr_within_two_without_rules": _share(plain_factors),
        "lr_in_interval": sum(held) / len(held),
        "pooled_lr_within_two": _share(pooled_factors),
        "pooled_lr_in_interval": sum(pooled_held) / len(pooled_held),
    }
    if losses:
        ratios["moved_over_retuned_loss"] = statistics.median(losses)
        ratios["retuned_loss_over_itself"] = statistics.median(noise)
        ratios["pooled_over_retuned_loss"] = statistics.median(pooled_losses)
        ratios["nearest_over_retuned_loss"] = statistics.median(nearest_losses)
        ratios["pooled_over_nearest_loss"] = statistics.geometric_mean(over_nearest)
    for begin in given.begin if given.seeded else ():
        prefix = "seeded" if begin == "nearest" else "seeded_together"
        trials = [one.needed / num for one, num in zip(searches[begin], num_unseeded, strict=True)]
        ratios[f"{prefix}_over_unseeded_trials"] = min(statistics.median(trials), 99.0)
        if given.train:
            ratios[f"{prefix}_winner_over_retuned_loss"] = statistics.median(winners[begin])
    if given.seeded and len(searches) == len(BEGINNINGS):
        alone, common = (searches[begin] for begin in BEGINNINGS)
        pairs = list(zip(common, alone, strict=True))
        firsts = [loss_ratio([one.first_value], [other.first_value]) for one, other in pairs]
        bests = [loss_ratio([one.best_value], [other.best_value]) for one, other in pairs]
        ratios["together_over_nearest_first_value"] = statistics.geometric_mean(firsts)
        ratios["together_over_nearest_best_value"] = statistics.geometric_mean(bests)
        figures |= {"together_over_nearest_first": firsts, "together_over_nearest_best": bests}
        if given.train:
            both = zip(*(winners[begin] for begin in reversed(BEGINNINGS)), strict=True)
            ratios["together_over_nearest_winner_loss"] = statistics.geometric_mean(a / b for a, b in both)
    columns = ["member", "small one's lr", "moved lr", "own lr", "lr factor", "in interval"]
    columns += ["pooled lr factor", "in interval"]
    columns += ["loss ratio", "noise", "seed noise"] if given.train else []
    columns += ["pooled ratio", "noise", "nearest ratio", "pooled over nearest", "noise"] if given.train else []
    columns += ["with own fields"] if given.fields else []
    for begin in given.begin if given.seeded else ():
        columns += [f"{begin}: seeded trials", *(["winner ratio"] if given.train else [])]
    figures |= {
        "fields": fields,
        "pooled_lr_factors": pooled_factors,
        "pooled_loss": pooled_losses,
        "nearest_loss": nearest_losses,
    }
    report("transfer", columns=columns, rows=rows, figures=figures, ratios=ratios, json_file=given.json)


def loss_ratio(found: Sequence[float], own: Sequence[float]) -> float:
    """The geometric mean of losses over that of others; `PENALTY` where one diverged."""
    if not all(map(math.isfinite, (*found, *own))):
        return PENALTY
    return statistics.geometric_mean(found) / statistics.geometric_mean(own)


def seed_noise(losses: Sequence[float]) -> float:
    """The standard deviation of the loss with one seed, as a factor; `PENALTY` where one diverged."""
    if not all(map(math.isfinite, losses)):
        return PENALTY
    return math.exp(statistics.stdev(map(math.log, losses))) if len(losses) > 1 else math.nan


def ratio_noise(found: Sequence[float], own: Sequence[float]) -> float:
    """The standard error of a `loss_ratio` over the same seeds, as a factor; `PENALTY` where one diverged."""
    if not all(map(math.isfinite, (*found, *own))):
        return PENALTY
    if len(own) < 2:
        return math.nan
    ratios = [math.log(a / b) for a, b in zip(found, own, strict=True)]
    return math.exp(statistics.stdev(ratios) / math.sqrt(len(ratios)))


def with_own_fields(config: TunedConfig, own: TunedConfig) -> dict[str, TunedConfig]:
    """The config with one field at a time replaced by that of another one, by the names of those that differ."""
    found: dict[str, TunedConfig] = {}
    for name, value in own.arguments.items():
        before = config.arguments.get(name)
        if isinstance(value, Sequence) and not isinstance(value, str) and before is not None:
            for place, element in enumerate(value):
                if element != before[place]:
                    elements = [*before[:place], element, *before[place + 1 :]]
                    found[f"{name}[{place}]"] = dataclasses.replace(
                        config, arguments={**config.arguments, name: elements}
                    )
        elif value != before:
            found[name] = dataclasses.replace(config, arguments={**config.arguments, name: value})
    for name, value in own.schedule.items():
        if value != config.schedule.get(name):
            schedule = {**config.schedule, name: value}
            found[f"schedule.{name}"] = dataclasses.replace(config, schedule=schedule)
    return found


def _share(factors: list[float]) -> float:
    return sum(0.5 <= factor <= 2 for factor in factors) / len(factors)


if __name__ == "__main__":
    main()
