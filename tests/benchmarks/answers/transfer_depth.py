"""How the best learning rate goes with depth, of models of other depths than the shipped table has.

    python -m tests.benchmarks.answers.transfer_depth                        # an MLP and a language model (minutes)
    python -m tests.benchmarks.answers.transfer_depth --models autoencoder --presets adamw

Each model is trained at several depths with a grid of learning rates by factors of two, all other hyperparameters the
preset's defaults; a parabola is fitted to the means over `--seeds` of the logarithms of the losses. The language model
has residual branches and norms, the convnet norms, the MLP and the autoencoder neither.

- `exponent.MODEL.PRESET`: the slope of the logarithm of the best learning rate over that of depth, after the rule for
  fan-in, by least squares over all depths; the rules have -0.5
- `rule_over_best_lr.MODEL.PRESET.DEPTH`: the learning rate of the shallowest one, moved, over the best one;
  `rule_over_best_loss...`: the loss there over the least one, read between the points of the grid
- `lr_decides.MODEL.PRESET.DEPTH`: the largest loss of the grid around the best learning rate, a factor of two to either
  side, over the least: near 1, no learning rate is better than others
- `in_interval`: the share of these whose best learning rate the 80% interval holds
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import statistics
from dataclasses import dataclass
from pathlib import Path

import torch

from search_spaces import preset
from service.transfer.candidates import Source, SourceKind, TransferCandidate
from service.transfer.ranking import Transferred, transferred
from service.transfer.rules import TunedConfig
from tests.benchmarks.answers.transfer import PENALTY
from tests.benchmarks.answers.transfer_distance import (
    RULE,
    best_of,
    losses_near,
    read_between,
    situation_of,
)
from tests.benchmarks.report import Cell, report
from tests.benchmarks.search.make_knowledge import MEMBERS, PRESETS, Member

DEPTHS = {"mlp": (2, 5, 11), "gpt": (2, 4, 8), "convnet": (3, 6, 12), "autoencoder": (4, 8, 16)}
"""The depths of small members, as their workloads count them, the shallowest first."""


@dataclass(frozen=True, slots=True)
class Deepened:
    """A model of one depth, with the learning rates that were tried."""

    member: Member
    losses: dict[int, float]
    """The logarithms of losses by log2 of the learning rate."""
    moved: Transferred
    """The preset's defaults with the shallowest one's best learning rate, moved to it."""

    @property
    def depth(self) -> float:
        """Its matrices."""
        return situation_of(self.member).features.depth

    @property
    def best(self) -> float:
        """Its best learning rate."""
        return best_of(self.losses)

    @property
    def by_rule(self) -> float:
        """The learning rate that was moved to it."""
        return float(self.moved.config.arguments["lr"])

    @property
    def is_in_interval(self) -> bool:
        """True if the interval that is said of it holds the best learning rate."""
        interval = next(one for one in self.moved.intervals if one.name == "lr")
        return interval.low <= self.best <= interval.high


def deepened(name: str, preset_name: str, *, num_seeds: int) -> list[Deepened]:
    """A model at each of its depths, the shallowest first."""
    small = next(member for member in MEMBERS if member.name == name)
    space, defaults = preset(preset_name), preset(preset_name).defaults()
    start = defaults["lr"]
    assert isinstance(start, float)
    found: list[Deepened] = []
    for depth in DEPTHS[name]:
        member = dataclasses.replace(small, options={**small.options, "depth": depth}, preset=preset_name)
        shallow = found[0] if found else None
        assigned = space.assign({**defaults, "lr": shallow.best if shallow else start})
        config = TunedConfig(assigned.optimizer, assigned.optimizer_arguments, assigned.schedule)
        origin = TransferCandidate(
            config, Source(SourceKind.SHIPPED, name), situation_of(shallow.member if shallow else member)
        )
        moved = transferred(config, origin, situation_of(member))
        lr = float(moved.config.arguments["lr"])
        found.append(Deepened(member, losses_near(member, lr, num_seeds=num_seeds), moved))
    return found


def exponent_of(found: list[Deepened]) -> float:
    """The slope of ln lr over ln depth, without what the rules say of fan-in."""
    depths = [math.log(one.depth) for one in found]
    rates = [math.log(one.best / one.by_rule) + RULE * math.log(one.depth / found[0].depth) for one in found[1:]]
    return float(statistics.linear_regression(depths, [0.0, *rates]).slope)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["mlp", "gpt"], choices=list(DEPTHS))
    parser.add_argument("--presets", nargs="+", default=PRESETS, choices=PRESETS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file for the result")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[list[Cell]] = []
    ratios: dict[str, float] = {}
    held = []
    for name, preset_name in itertools.product(given.models, given.presets):
        found = deepened(name, preset_name, num_seeds=given.seeds)
        ratios[f"exponent.{name}.{preset_name}"] = exponent_of(found)
        for one in found:
            place = min(one.losses, key=lambda place: one.losses[place])
            around = max(one.losses[place - 1], one.losses[place + 1]) - one.losses[place]
            decides = min(math.exp(around), PENALTY)
            ratios[f"lr_decides.{name}.{preset_name}.{one.depth:g}"] = decides
            off: Cell = ""
            lost: Cell = ""
            if one is not found[0]:
                held.append(one.is_in_interval)
                off = ratios[f"rule_over_best_lr.{name}.{preset_name}.{one.depth:g}"] = one.by_rule / one.best
                lost = min(math.exp(read_between(one.losses, one.by_rule) - min(one.losses.values())), PENALTY)
                ratios[f"rule_over_best_loss.{name}.{preset_name}.{one.depth:g}"] = lost
            rows.append([f"{name}, {preset_name}", one.depth, one.best, off, lost, decides])
            print(*rows[-1], flush=True)
    ratios["in_interval"] = sum(held) / len(held)
    columns = ["model", "matrices", "best lr", "rule over best", "loss over least", "loss beside the best"]
    report("transfer_depth", columns=columns, rows=rows, figures={}, ratios=ratios, json_file=given.json)


if __name__ == "__main__":
    main()
