"""The cost of an octave of each axis for a moved config, and how far one says more than what is published.

    python -m tests.benchmarks.answers.transfer_distance            # from the shipped table alone: seconds
    python -m tests.benchmarks.answers.transfer_distance --train mlp gpt  # and two models in long trainings

Each member of the shipped table, of Shampoo and of AdamW, has its best config moved to each other one by the rules. The
error of a moved learning rate is the logarithm of what it is over the member's own optimum (`transfer.best_lr`).

- `error_per_octave.AXIS`: the root mean square of that over the octaves, of pairs of a family that differ in this axis
  alone; `weight.AXIS` over that of width, and with each family left out its range
- `is_nearer.own`, `is_nearer.other`: the share of pairs of one family, and of two, whose moved learning rate is nearer
  to the optimum than that of the first published point; `is_nearer.other.N`: of those up to N octaves apart, and more
  than N - 1
- `in_interval.own`, `in_interval.other`: the share whose optimum the 80% interval holds
- `depth_error.rule`: the root mean square of the error of the deeper members, moved from their family's small ones;
  `depth_error.chosen`: the same where each family has the exponent of depth, of `DEPTH_EXPONENTS`, with the least such
  error on the other families, which `depth_exponent.FAMILY` names; `depth_error.EXPONENT`: one for all
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
from service.transfer.rules import TunedConfig
from service.transfer.situation import Distance, Situation
from tests.benchmarks.answers.transfer import PENALTY, best_lr, moved_to
from tests.benchmarks.report import Cell, report
from tests.benchmarks.search.make_knowledge import PRESETS, Member, train_value
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


def losses_over_published(target: Member, sources: Sequence[ShippedMember]) -> dict[str, float]:
    """The loss of a long training with each source's config, moved, over that with the first published point."""
    situation = Situation.of(
        target.shape, batch_size=target.batch_size, num_steps=target.num_steps, workload=target.workload
    )
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
    parser.add_argument("--json", type=Path, help="file for the result")
    given = parser.parse_args()
    torch.set_num_threads(1)
    pairs = [pair for name in PRESETS for pair in pairs_of(name)]
    ratios = {**claims(pairs), **depth_claims(pairs)}
    sources = [one for one in shipped_members() if one.preset == "shampoo" and one.name in given.sources]
    for name in given.train:
        losses = losses_over_published(LONG[name], sources)
        ratios |= {f"loss_over_published.{name}.{source}": loss for source, loss in losses.items()}
    columns = ["axis", "error in an octave", "over width's", "least", "most"]
    report("transfer_distance", columns=columns, rows=rows_of(pairs), figures={}, ratios=ratios, json_file=given.json)


if __name__ == "__main__":
    main()
