"""The cost of an octave of each axis for a moved config, and how far one says more than what is published.

    python -m tests.benchmarks.answers.transfer_distance            # from the shipped table alone: seconds
    python -m tests.benchmarks.answers.transfer_distance --train mlp gpt  # and two models in long trainings
    python -m tests.benchmarks.answers.transfer_distance --widths mlp  # and a model as wide as none of the table

Each member of the shipped table, of Shampoo and of AdamW, has its best config moved to each other one by the rules. The
error of a moved learning rate is the logarithm of what it is over the member's own optimum (`transfer.best_lr`).

- `error_per_octave.AXIS`: the root mean square of that over the octaves, of pairs of a family that differ in this axis
  alone; `weight.AXIS` over that of width, and with each family left out its range
- `is_nearer.own`, `is_nearer.other`: the share of pairs of one family, and of two, whose moved learning rate is nearer
  to the optimum than that of the first published point; `is_nearer.other.N`: of those up to N octaves apart, and more
  than N - 1
- `in_interval.own`, `in_interval.other`, `in_interval.AXIS`: the share whose optimum the 80% interval holds, of pairs
  that differ in this axis alone, too
- `depth_error.rule`: the root mean square of the error of the deeper members, moved from their family's small ones;
  `depth_error.chosen`: the same where each family has the exponent of depth, of `DEPTH_EXPONENTS`, with the least such
  error on the other families, which `depth_exponent.FAMILY` names; `depth_error.EXPONENT`: one for all
- `width_error.METHODS.rule`, `width_error.METHODS.chosen`, `width_exponent.METHODS.FAMILY`: likewise of wider members
  and the exponent of width, of those whose steps are elementwise and of those in the eigenbasis of blocks
- `rule_over_best_lr.MODEL.PRESET.WIDTH` (with `--widths`): the learning rate of the narrowest of a model's widths,
  moved, over the best one of a grid by factors of two, to which a parabola is fitted, of the means over `--seeds`; all
  other hyperparameters are the preset's defaults. `rule_over_best_loss...`: the loss there over the least one, read
  between the points of the grid. The widths then count among the wider members above
- `loss_over_published.MODEL.SOURCE` (with `--train`): a small member's loss after 16 to 50 times as many steps as it
  was tuned for, with the config of each source, moved, over that with the first published point, seed 1; the second and
  third published points are among the sources
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from search_spaces import preset
from search_spaces.shipped.algoperf import POINTS
from service.transfer.candidates import ShippedMember, published, shipped_members
from service.transfer.ranking import Transferred, transferred
from service.transfer.rules import TunedConfig, moved, step_kind
from service.transfer.situation import Distance, Situation
from tests.benchmarks.answers.transfer import PENALTY, best_lr, moved_to
from tests.benchmarks.report import Cell, report
from tests.benchmarks.search.make_knowledge import MEMBERS, PRESETS, Member, train_value
from trainers.config import OptimizerConfig, ScheduleConfig

AXES = ("width", "depth", "batch_size", "num_steps")
SAME = 0.4
"""Octaves up to which two members do not differ in an axis: a mean width varies with the depth of an autoencoder."""
RULE = -0.5
"""The exponent of depth that the rules have."""
DEPTH_EXPONENTS = (0.0, -0.5, -1.0, -1.5, -2.0)
LONG = {
    "mlp": Member("mlp", "digits-mlp", 32, 5000, {"width": 32}),
    "autoencoder": Member("autoencoder", "digits-autoencoder", 64, 3000, {"width": 32}),
    "convnet": Member("convnet", "digits-convnet", 16, 2000, {"width": 8}),
    "gpt": Member("gpt", "stdlib-gpt", 8, 1600, {"width": 16, "depth": 2}),
}
"""The small members, of many times as many steps."""
WIDTH_EXPONENTS = (0.0, -0.25, -0.5, -0.75, -1.0)
WIDTHS = {"mlp": (64, 256, 1024, 2048), "convnet": (8, 32, 128), "autoencoder": (32, 128, 512), "gpt": (16, 64, 192)}
"""The widths of small members that are tuned with `--widths`, the narrowest first."""
WIDTH_PRESETS = ("shampoo", "soap", "adamw")


@dataclass(frozen=True, slots=True)
class Pair:
    """A member moved to another one."""

    source: ShippedMember
    target: ShippedMember
    moved: Transferred

    @property
    def apart(self) -> Distance:
        assert self.moved.distance is not None
        return self.moved.distance

    @property
    def error(self) -> float:
        """The logarithm of the moved learning rate over the target's optimum."""
        return math.log(float(self.moved.config.arguments["lr"]) / best_lr(self.target))

    @property
    def published_error(self) -> float:
        """The error of the first published point, whose learning rate both of its sides have."""
        lr = POINTS[0].searched["lr"]
        assert isinstance(lr, float)
        return math.log(lr / best_lr(self.target))

    @property
    def is_own(self) -> bool:
        """True if both are of one family."""
        return self.source.workload == self.target.workload

    @property
    def is_nearer(self) -> bool:
        """True if the moved learning rate is nearer to the optimum than the published one."""
        return abs(self.error) < abs(self.published_error)

    @property
    def is_in_interval(self) -> bool:
        """True if the interval that was said holds the optimum."""
        interval = next(one for one in self.moved.intervals if one.name == "lr")
        return interval.low <= best_lr(self.target) <= interval.high

    @property
    def only_axis(self) -> str | None:
        """The one axis in which two members of a family differ."""
        differing = [axis for axis in AXES if getattr(self.apart, axis) > SAME]
        return differing[0] if self.is_own and len(differing) == 1 else None


def pairs_of(name: str) -> list[Pair]:
    """All ordered pairs of members that were tuned with a preset."""
    members = [member for member in shipped_members() if member.preset == name]
    return [Pair(source, target, moved_to(target, source)) for source, target in itertools.permutations(members, 2)]


def error_per_octave(pairs: Sequence[Pair], axis: str) -> float:
    """The root mean square of the error in an octave of the axis; nan if no pair differs in it alone."""
    squares = [(pair.error / getattr(pair.apart, axis)) ** 2 for pair in pairs if pair.only_axis == axis]
    return math.sqrt(statistics.fmean(squares)) if squares else math.nan


def weights(pairs: Sequence[Pair]) -> dict[str, float]:
    """The cost of an octave of each axis over that of width."""
    of_width = error_per_octave(pairs, "width")
    return {axis: error_per_octave(pairs, axis) / of_width for axis in AXES}


def rows_of(pairs: Sequence[Pair]) -> list[list[Cell]]:
    """For each axis the cost of an octave, its weight, and the range of that with each family left out."""
    families = sorted({pair.target.workload for pair in pairs})
    without = [
        weights([p for p in pairs if family not in (p.source.workload, p.target.workload)]) for family in families
    ]
    rows: list[list[Cell]] = []
    for axis, weight in weights(pairs).items():
        left = [one[axis] for one in without if not math.isnan(one[axis])]
        rows.append([axis, error_per_octave(pairs, axis), weight, min(left), max(left)])
    return rows


def claims(pairs: Sequence[Pair]) -> dict[str, float]:
    """The ratios of all pairs."""
    found = {f"error_per_octave.{axis}": error_per_octave(pairs, axis) for axis in AXES}
    found |= {f"weight.{axis}": weight for axis, weight in weights(pairs).items()}
    own = [pair for pair in pairs if pair.is_own]
    other = [pair for pair in pairs if not pair.is_own]
    for name, some in (("own", own), ("other", other)):
        found[f"is_nearer.{name}"] = _share(some, lambda pair: pair.is_nearer)
        found[f"in_interval.{name}"] = _share(some, lambda pair: pair.is_in_interval)
    for axis in AXES:
        found[f"in_interval.{axis}"] = _share(
            [pair for pair in own if pair.only_axis == axis], lambda pair: pair.is_in_interval
        )
    for octaves in range(1, math.ceil(max(pair.apart.total for pair in other)) + 1):
        if band := [pair for pair in other if octaves - 1 < pair.apart.total <= octaves]:
            found[f"is_nearer.other.{octaves}"] = _share(band, lambda pair: pair.is_nearer)
    return found


def _share(pairs: Sequence[Pair], holds: Callable[[Pair], bool]) -> float:
    return statistics.fmean(map(holds, pairs))


def depth_claims(pairs: Sequence[Pair]) -> dict[str, float]:
    """The errors of deeper members with other exponents of depth, one of them chosen on other families."""
    deeper = [
        pair
        for pair in pairs
        if pair.only_axis == "depth" and pair.target.situation.features.depth > pair.source.situation.features.depth
    ]
    families = sorted({pair.target.workload for pair in deeper})
    chosen = {
        family: min(
            DEPTH_EXPONENTS,
            key=lambda exponent: _missed([(pair, exponent) for pair in deeper if pair.target.workload != family]),
        )
        for family in families
    }
    found = {f"depth_exponent.{family}": exponent for family, exponent in chosen.items()}
    found["depth_error.rule"] = _missed([(pair, RULE) for pair in deeper])
    found["depth_error.chosen"] = _missed([(pair, chosen[pair.target.workload]) for pair in deeper])
    found |= {f"depth_error.{one:g}": _missed([(pair, one) for pair in deeper]) for one in DEPTH_EXPONENTS}
    return found


def _missed(moved: Sequence[tuple[Pair, float]]) -> float:
    """The root mean square of the errors of pairs, each with another exponent of depth."""
    errors = [
        pair.error
        + (exponent - RULE) * math.log(pair.target.situation.features.depth / pair.source.situation.features.depth)
        for pair, exponent in moved
    ]
    return math.sqrt(statistics.fmean(error**2 for error in errors))


@dataclass(frozen=True, slots=True)
class Widened:
    """A wider model beside a narrower one that is else the same; all ratios are over that."""

    family: str
    preset: str
    width: float
    lr: float
    """The best learning rate over that of the narrower one."""
    lr_by_rule: float

    @property
    def methods(self) -> str:
        """The kind of steps, whose rule they share."""
        optimizer, fixed = preset(self.preset).optimizer, preset(self.preset).fixed
        return step_kind(optimizer, fixed).value

    def error(self, exponent: float | None) -> float:
        """The logarithm of a moved learning rate over the best one; None: as the rules have it."""
        return math.log((self.lr_by_rule if exponent is None else self.width**exponent) / self.lr)


def widened_of(pairs: Sequence[Pair]) -> list[Widened]:
    """The wider members of the table."""
    return [
        Widened(
            pair.target.workload,
            pair.target.preset,
            pair.target.situation.features.width / pair.source.situation.features.width,
            best_lr(pair.target) / best_lr(pair.source),
            float(pair.moved.config.arguments["lr"]) / best_lr(pair.source),
        )
        for pair in pairs
        if pair.only_axis == "width" and pair.target.situation.features.width > pair.source.situation.features.width
    ]


def width_claims(widened: Sequence[Widened]) -> dict[str, float]:
    """The errors of wider models with the rule and other exponents of width, one of them chosen on other families."""
    found = {}
    for methods in sorted({one.methods for one in widened}):
        alike = [one for one in widened if one.methods == methods]
        families = sorted({one.family for one in alike})
        found[f"width_error.{methods}.rule"] = _width_error(alike, None)
        found |= {f"width_error.{methods}.{one:g}": _width_error(alike, one) for one in WIDTH_EXPONENTS}
        if len(families) > 1:
            errors = []
            for family in families:
                others = [one for one in alike if one.family != family]
                chosen = min(WIDTH_EXPONENTS, key=lambda exponent: _width_error(others, exponent))
                found[f"width_exponent.{methods}.{family}"] = chosen
                errors += [one.error(chosen) for one in alike if one.family == family]
            found[f"width_error.{methods}.chosen"] = math.sqrt(statistics.fmean(error**2 for error in errors))
    return found


def _width_error(widened: Sequence[Widened], exponent: float | None) -> float:
    return math.sqrt(statistics.fmean(one.error(exponent) ** 2 for one in widened))


def losses_near(member: Member, lr: float, *, num_seeds: int) -> dict[int, float]:
    """The logarithms of losses, the means over seeds, by log2 of the learning rate: those around the best one and the
    given one, each of them between two others."""
    found: dict[int, float] = {}
    middle = round(math.log2(lr))
    while True:
        for place in (middle - 1, middle, middle + 1):
            if place not in found:
                found[place] = _log_loss(member, 2.0**place, num_seeds=num_seeds)
        best = min(found, key=lambda place: found[place])
        if best == middle:
            return found
        middle = best


def _log_loss(member: Member, lr: float, *, num_seeds: int) -> float:
    values = []
    for seed in range(1, num_seeds + 1):
        value = train_value(member.config({**preset(member.preset).defaults(), "lr": lr}, seed=seed))
        values.append(math.inf if value is None else math.log(value))
    losses = [f"{math.exp(value):.4g}" for value in values]
    print(f"{member.preset}, {member.name} {dict(member.options)}, lr {lr:.4g}: {' '.join(losses)}", flush=True)
    return statistics.fmean(values)


def best_of(losses: dict[int, float]) -> float:
    """The learning rate at the least loss, by a parabola through the best one of a grid and those beside it."""
    place = min(losses, key=lambda one: losses[one])
    low, middle, high = (losses[one] for one in (place - 1, place, place + 1))
    bend = low - 2 * middle + high
    shift = (low - high) / (2 * bend) if math.isfinite(bend) and bend > 0 else 0.0
    return float(2.0 ** (place + shift))


def read_between(losses: dict[int, float], lr: float) -> float:
    """The logarithm of the loss with a learning rate within a grid, by straight lines between its points."""
    below = math.floor(math.log2(lr))
    share = math.log2(lr) - below
    return losses[below] if share == 0 else (1 - share) * losses[below] + share * losses[below + 1]


def tuned_widths(name: str, preset_name: str, *, num_seeds: int) -> tuple[list[Widened], dict[str, float]]:
    """The wider ones of a model's widths, and how well the learning rate of the narrowest one suits each."""
    small = next(member for member in MEMBERS if member.name == name)
    first_width, *widths = WIDTHS[name]
    narrow = _of_width(small, first_width, preset_name)
    space, defaults = preset(preset_name), preset(preset_name).defaults()
    start = defaults["lr"]
    assert isinstance(start, float)
    own = best_of(losses_near(narrow, start, num_seeds=num_seeds))
    assigned = space.assign({**defaults, "lr": own})
    config = TunedConfig(assigned.optimizer, assigned.optimizer_arguments, assigned.schedule)
    widened, found = [], {}
    for width in widths:
        member = _of_width(small, width, preset_name)
        by_rule = float(moved(config, situation_of(narrow), situation_of(member))[0].arguments["lr"])
        losses = losses_near(member, by_rule, num_seeds=num_seeds)
        wider = situation_of(member).features.width / situation_of(narrow).features.width
        widened.append(Widened(member.workload, preset_name, wider, best_of(losses) / own, by_rule / own))
        found[f"rule_over_best_lr.{name}.{preset_name}.{width}"] = by_rule / best_of(losses)
        lost = min(math.exp(read_between(losses, by_rule) - min(losses.values())), PENALTY)
        found[f"rule_over_best_loss.{name}.{preset_name}.{width}"] = lost
    return widened, found


def _of_width(member: Member, width: int, preset_name: str) -> Member:
    return dataclasses.replace(member, options={**member.options, "width": width}, preset=preset_name)


def situation_of(member: Member) -> Situation:
    """The situation of a member that is not in the table."""
    return Situation.of(
        member.shape, batch_size=member.batch_size, num_steps=member.num_steps, workload=member.workload
    )


def losses_over_published(target: Member, sources: Sequence[ShippedMember]) -> dict[str, float]:
    """The loss of a long training with each source's config, moved, over that with the first published point."""
    situation = situation_of(target)
    first, *others = [point.config for point in published()[:3]]
    configs = {f"point {number}": config for number, config in enumerate(others, 2)}
    configs |= {one.name: transferred(one.candidate().config, one.candidate(), situation).config for one in sources}
    loss = _trained(target, first)
    return {name: min(_trained(target, config) / loss, PENALTY) for name, config in configs.items()}


def _trained(target: Member, config: TunedConfig) -> float:
    value = train_value(
        dataclasses.replace(
            target.config(preset(target.preset).defaults(), seed=1),
            optimizer=OptimizerConfig("shampoo", dict(config.arguments)),
            schedule=ScheduleConfig(**config.schedule),
        )
    )
    return math.inf if value is None else value


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", nargs="+", default=[], choices=list(LONG), help="models to train for long")
    parser.add_argument("--sources", nargs="+", default=["mlp", "mlp-long", "convnet", "gpt"], help="with --train")
    parser.add_argument(
        "--widths", nargs="+", default=[], choices=list(WIDTHS), help="models to tune at several widths"
    )
    parser.add_argument("--presets", nargs="+", default=WIDTH_PRESETS, choices=WIDTH_PRESETS, help="with --widths")
    parser.add_argument("--seeds", type=int, default=2, help="with --widths")
    parser.add_argument("--json", type=Path, help="file for the result")
    given = parser.parse_args()
    torch.set_num_threads(1)
    pairs = [pair for name in PRESETS for pair in pairs_of(name)]
    widened = widened_of(pairs)
    ratios = {**claims(pairs), **depth_claims(pairs)}
    for name, preset_name in itertools.product(given.widths, given.presets):
        tuned, found = tuned_widths(name, preset_name, num_seeds=given.seeds)
        widened += tuned
        ratios |= found
    ratios |= width_claims(widened)
    sources = [one for one in shipped_members() if one.preset == "shampoo" and one.name in given.sources]
    for name in given.train:
        losses = losses_over_published(LONG[name], sources)
        ratios |= {f"loss_over_published.{name}.{source}": loss for source, loss in losses.items()}
    columns = ["axis", "error in an octave", "over width's", "least", "most"]
    report("transfer_distance", columns=columns, rows=rows_of(pairs), figures={}, ratios=ratios, json_file=given.json)


if __name__ == "__main__":
    main()
