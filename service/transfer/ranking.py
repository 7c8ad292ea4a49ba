"""Ranked configs for a model that was never tuned: those of the nearest tuned ones, moved, then what is published."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from service.evidence.types import EvidenceStatus
from service.transfer.adapters import begun_for_adapters
from service.transfer.candidates import SourceKind, TransferCandidate, published, shipped_members
from service.transfer.rules import Change, TunedConfig, moved
from service.transfer.situation import Distance, Situation, distance
from trainers.config import FOR_ADAPTERS

FARTHEST = 6.0
"""Octaves beyond which a tuned model counts no more than what is published, whose it be, by judgement: of the shipped
table's models of other families most moved learning rates up to there are nearer to the optimum than a published one,
and of four long trainings three end lower with them (`tests.benchmarks.answers.transfer_distance`)."""
SHIPPED_APART = 0.5
"""Octaves by which a shipped member counts as farther: it was tuned by few trials, and not by whoever asks."""
LR_SPREAD = (0.5, 0.15)
"""Standard deviation of ln lr of the best config around a transferred one: of a single search of 24 trials, and what
each octave of distance but that of depth adds (in squares). `python -m tests.benchmarks.answers.transfer` and
`transfer_distance` there print how often the interval holds: more often than it says, as models in use are larger than
the table's."""
DEPTH_SPREAD = 0.6
"""Standard deviation that an octave of depth adds: as much as the rule misses by there (`transfer_distance`). With 0.45
the interval holds for two thirds of the members that differ in depth alone."""
DECAY_SPREAD = (2.0, 0.3)
"""Standard deviations of the logarithm of the weight decay, likewise: short trainings hardly tell what is best."""
CONFIDENCE = 0.8
"""Confidence of the intervals, by judgement: they are ranges to search in, and rules are rough."""
_DEVIATIONS = 1.2816
"""Standard deviations of the normal distribution, to either side, at that confidence."""
VARIATIONS = (0.5, 2.0)
"""Factors of the learning rate that are tried around the nearest config, as the rule has it."""
ON_PURPOSE = "tried beside what the rules say, as the best may lie there"
"""The source of the factor in `VARIATIONS`."""


@dataclass(frozen=True, slots=True)
class ParameterInterval:
    """The range that holds the best value of a parameter for the model in question, with `CONFIDENCE`."""

    name: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Transferred:
    """A config for a model that was never tuned."""

    config: TunedConfig
    origin: TransferCandidate
    """The config as it was tuned, with its source."""
    distance: Distance | None
    """None: it was tuned for no one model."""
    changes: Sequence[Change]
    """Values that rules moved, and the learning rate where it was varied beside them."""
    intervals: Sequence[ParameterInterval]
    """Empty: nobody knows."""
    lr_factor: float = 1.0
    """Factor of the learning rate, on purpose, around what the rules say."""


def rank(target: Situation, stored: Sequence[TransferCandidate], *, num_configs: int) -> list[Transferred]:
    """The configs to try for a model, in this order; `num_configs` of them, if there are as many.

    Those of the nearest tuned models come first, moved by the rules: half of all, of the store and of the shipped table
    as far as these are near. Then the nearest one with half and twice its learning rate, the published points in the
    order that hits soonest, and what is left of the others. For low-rank adapters only models with adapters are near,
    and what was measured on adapters comes before the points.

    Args:
        stored: what jobs have tuned; each with a situation.
    """
    tuned = sorted(_moved(target, stored), key=_place)
    near = [found for found in tuned if _apart(found) <= FARTHEST and _trains_alike(found.origin, target)]
    begun = _begun(target) if target.features.has_adapters else []
    first = near[: max(1, (num_configs + 1) // 2)] or begun[:1]
    varied = [with_lr(first[0], factor) for factor in VARIATIONS] if first else []
    known = [_as_published(candidate) for candidate in published()]
    rest = [found for found in tuned if found not in first]
    ranked: list[Transferred] = []
    for found in (*first, *varied, *begun, *known, *rest):
        if all(found.config != other.config for other in ranked):
            ranked.append(found)
    return ranked[:num_configs]


def rank_proxy(target: Situation, proxy: TransferCandidate, *, num_configs: int) -> list[Transferred]:
    """The config of a smaller or shorter version of a model, moved to it by the rules, and with half and twice its
    learning rate: up to three."""
    first = transferred(proxy.config, proxy, target)
    return [first, *(with_lr(first, factor) for factor in VARIATIONS)][:num_configs]


def transferred(config: TunedConfig, origin: TransferCandidate, target: Situation) -> Transferred:
    """A config that was tuned for the situation of `origin`, moved to the target."""
    assert origin.situation is not None, "what is of no one model is not moved"
    found, changes = moved(config, origin.situation, target)
    apart = distance(origin.situation, target)
    return Transferred(found, origin, apart, changes, _intervals(found, apart))


def spread_of_lr(apart: Distance) -> float:
    """The standard deviation of ln lr at a distance."""
    of_others = dataclasses.replace(apart, depth=0.0).total
    return math.hypot(LR_SPREAD[0], LR_SPREAD[1] * of_others, DEPTH_SPREAD * apart.depth)


def with_lr(found: Transferred, factor: float) -> Transferred:
    """The config with another learning rate, which is what its changes end with."""
    lr = float(format(found.config.arguments["lr"] * factor, ".4g"))
    config = dataclasses.replace(found.config, arguments={**found.config.arguments, "lr": lr})
    return dataclasses.replace(found, config=config, changes=_with_lr(found, lr, factor), lr_factor=factor)


def _with_lr(found: Transferred, lr: float, factor: float) -> list[Change]:
    beside = f"× {factor:g} on purpose"
    by_rules = next((one for one in found.changes if one.name == "lr"), None)
    if by_rules is None:
        return [Change("lr", found.config.arguments["lr"], lr, beside, ON_PURPOSE), *found.changes]
    reason, source = f"{by_rules.reason}; {beside}", f"{by_rules.source}; {ON_PURPOSE}"
    of_lr = dataclasses.replace(by_rules, after=lr, reason=reason, source=source)
    return [of_lr if one is by_rules else one for one in found.changes]


def _moved(target: Situation, stored: Sequence[TransferCandidate]) -> Iterator[Transferred]:
    shipped = (member.candidate() for member in shipped_members())
    for candidate in (*stored, *(one for one in shipped if one.config.optimizer == "shampoo")):
        if candidate.config.optimizer in FOR_ADAPTERS and not target.features.has_adapters:
            continue
        yield transferred(candidate.config, candidate, target)


def _apart(found: Transferred) -> float:
    assert found.distance is not None
    return found.distance.total + (SHIPPED_APART if found.origin.source.kind is SourceKind.SHIPPED else 0.0)


def _place(found: Transferred) -> tuple[int, float]:
    """Refuted configs come last, then the nearest first, of equally near ones the confirmed ones."""
    status = EvidenceStatus(found.origin.source.status or EvidenceStatus.PROVISIONAL)
    return int(status is EvidenceStatus.REFUTED), _apart(found) + 0.1 * status.rank


def _intervals(config: TunedConfig, apart: Distance) -> list[ParameterInterval]:
    spreads = {"lr": spread_of_lr(apart), "weight_decay": math.hypot(DECAY_SPREAD[0], DECAY_SPREAD[1] * apart.total)}
    found = []
    for name, spread in spreads.items():
        value = config.arguments.get(name)
        if value:
            factor = math.exp(_DEVIATIONS * spread)
            found.append(ParameterInterval(name, float(f"{value / factor:.3g}"), float(f"{value * factor:.3g}")))
    return found


def _trains_alike(candidate: TransferCandidate, target: Situation) -> bool:
    """True if low-rank adapters are what is trained of both models, or of none."""
    situation = candidate.situation
    return situation is not None and situation.features.has_adapters == target.features.has_adapters


def _begun(target: Situation) -> list[Transferred]:
    return [transferred(candidate.config, candidate, target) for candidate in begun_for_adapters()]


def _as_published(candidate: TransferCandidate) -> Transferred:
    return Transferred(candidate.config, candidate, None, [], [])
