"""Ranked configs for a model that was never tuned: those of the nearest tuned ones, moved, then what is published."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from service.evidence.types import EvidenceStatus
from service.transfer.adapters import begun_for_adapters
from service.transfer.candidates import SourceKind, TransferCandidate, member_of, published, shipped_members
from service.transfer.pooled import MEASURED, PooledAnswer
from service.transfer.rules import (
    Change,
    StepKind,
    TunedConfig,
    decays_weights,
    moved,
    step_kind,
    with_defaults,
)
from service.transfer.situation import Distance, FamilyMember, Situation, distance
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
_DEVIATIONS = statistics.NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
"""Standard deviations of the normal distribution, to either side, at that confidence."""
OF_PASSES = 3.0
"""The weight of an octave of examples of a training beside one of width, for the decay alone: with Shampoo, those of
the shipped table's MLPs that see their data eight times as often were tuned to 30 times the others' decay and more."""
LEAST_DISTANCE = 1e-3
"""Octaves that a model which is the target itself counts as, beside others: as good as alone."""
VARIATIONS = (0.5, 2.0)
"""Factors of the learning rate that are tried around the nearest config, as the rule has it."""
RARE = 10
"""Steps between refreshes that a remark names beside a shorter period, by judgement: SOAP's own default."""
LOSS_IF_RARE: dict[str, float] = {"shampoo": 1.08, "soap": 1.2, "kl": 1.23}
"""The loss with refreshes every `RARE` steps over that with the period of the joint answer, by member of the family:
the geometric mean over the shipped table's models for which that is shorter
(`python -m tests.benchmarks.answers.transfer_members --train --every 10`)."""
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

    @property
    def remarks(self) -> list[str]:
        """Remarks for a person, each without a full stop."""
        period, member = self.config.arguments.get("precondition_frequency"), member_of(self.config)
        if period is None or period >= RARE or member not in LOSS_IF_RARE:
            return list(self.origin.remarks)
        often = "every step" if period == 1 else f"every {period} steps"
        rarely = f"with precondition_frequency={RARE} its refreshes take {period / RARE:.0%} of the time"
        told = f"the table's models, which are small, ended at {LOSS_IF_RARE[member]:.3g} times the loss"
        return [*self.origin.remarks, f"refreshes its preconditioners {often}; {rarely}, and {told}"]


def rank(
    target: Situation,
    stored: Sequence[TransferCandidate],
    *,
    num_configs: int,
    pooled: Sequence[PooledAnswer] = (),
    member: FamilyMember | None = None,
) -> list[Transferred]:
    """The configs to try for a model, in this order; `num_configs` of them, if there are as many.

    Those of the nearest tuned models come first, moved by the rules: half of all, of the store and of the shipped table
    as far as these are near. What several say together takes the place of the nearest of them, but comes after a model
    of the store that is the target itself. Then come each model of the store alone, what several say together of other
    presets, and each of the shipped table alone. The other half begins with the first one with half and twice its
    learning rate, then the published points in the order that hits soonest, and what is left of the others. For
    low-rank adapters only models with adapters are near, and what was measured on adapters comes before the points.

    Args:
        stored: what jobs have tuned; each with a situation.
        pooled: what several of the models say together, one config for each preset, in the order to try them.
        member: the member of Shampoo's family that is wanted, tuned models of others have no say; None: any.
    """
    all_moved = [found for found in _moved(target, stored) if _is_of(member, found)]
    tuned = sorted((with_common_decay(found, all_moved, target) for found in all_moved), key=_place)
    near = [found for found in tuned if is_near(found.origin, target)]
    near = _with_pooled(near, tuned, pooled)
    begun = [one for one in _begun(target) if _is_of(member, one)] if target.features.has_adapters else []
    first = near[: max(1, (num_configs + 1) // 2)] or begun[:1]
    varied = [with_lr(first[0], factor) for factor in VARIATIONS] if first else []
    known = [one for one in map(_as_published, published()) if _is_of(member, one)]
    rest = sorted((found for found in (*near, *tuned) if found not in first), key=_place)
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


def is_near_shipped(target: Situation) -> bool:
    """True if a model of the shipped table is near enough to say something of the target."""
    return any(is_near(found.origin, target) for found in _moved(target, []))


def is_near(candidate: TransferCandidate, target: Situation) -> bool:
    """True if a tuned model is near enough to say something of the target, and low-rank adapters are what is trained of
    both models, or of none."""
    tuned = candidate.situation
    if tuned is None or tuned.features.has_adapters != target.features.has_adapters:
        return False
    return counted_octaves(candidate, distance(tuned, target)) <= FARTHEST


def _is_of(member: FamilyMember | None, found: Transferred) -> bool:
    """True if a config is of the member of Shampoo's family that is wanted."""
    return member is None or member_of(found.config) == member


def _with_pooled(
    near: Sequence[Transferred], tuned: Sequence[Transferred], pooled: Sequence[PooledAnswer]
) -> list[Transferred]:
    """The near ones of all that was tuned, with what several say together where the first of them alone was; the model
    itself, tuned by a job, needs none of the others."""
    answers: list[Transferred] = []
    places: list[int] = []
    for answer in pooled:
        asked = (place for place, one in enumerate(near) if answer.asked(one.origin) and not _is_target_of_job(one))
        if (place := next(asked, None)) is not None:
            answers.append(together(answer, tuned))
            places.append(place)
    first = min(places, default=len(near))
    behind = sorted([*answers[1:], *near[first:]], key=lambda found: (_is_refuted(found), _is_shipped(found)))
    return [*near[:first], *answers[:1], *behind]


def _is_target_of_job(found: Transferred) -> bool:
    return found.origin.source.kind is SourceKind.STORE and found.distance is not None and not found.distance.total


def _is_shipped(found: Transferred) -> bool:
    return found.origin.source.kind is SourceKind.SHIPPED


def _is_refuted(found: Transferred) -> bool:
    return found.origin.source.status is EvidenceStatus.REFUTED


def together(pooled: PooledAnswer, tuned: Sequence[Transferred]) -> Transferred:
    """The config that several tuned models say together.

    Short trainings hardly tell which weight decay is best, so neither do their trials together: it has that of the
    nearest tuned model of the target's own data (`with_common_decay`), or else that of the nearest one that was asked.

    Args:
        tuned: what was tuned, moved to the target, the one to try first at the front; one that was asked among it.
    """
    asked = (found for found in tuned if pooled.asked(found.origin))
    nearest = min(asked, key=lambda found: (_is_refuted(found), _total(found)))
    assert nearest.distance is not None
    of_own_data = next((found for found in tuned if _decays_alike(nearest, found)), nearest)
    config = pooled.config(with_defaults(of_own_data.config)["weight_decay"])
    changes = pooled.changes(nearest.origin.config, config)
    by_rules = [one for one in of_own_data.changes if one.name == "weight_decay"]
    if of_own_data is nearest:
        changes += by_rules
    else:
        before, after = with_defaults(nearest.origin.config)["weight_decay"], config.arguments["weight_decay"]
        reasons = "; ".join(
            [f"that of {of_own_data.origin.source.name}, of its data", *(one.reason for one in by_rules)]
        )
        sources = "; ".join(one.source for one in by_rules) or MEASURED
        changes.append(Change("weight_decay", before, after, reasons, sources))
    return Transferred(
        config, pooled.origin(nearest.origin), nearest.distance, changes, _intervals(config, nearest.distance)
    )


def with_common_decay(found: Transferred, all_moved: Sequence[Transferred], target: Situation) -> Transferred:
    """The config with the weight decay that the tuned models of the target's own data and loss have together.

    A training that goes over its data once or twice ends alike with any small decay, and one that overfits does not: so
    the nearest model's says little where it was trained for fewer examples. It is the geometric mean of all the moved
    decays, each over the square of the distance, in which examples count. The target itself, at no distance, keeps its
    own. Models of other data have no say: what suits one family is up to ten thousand times what suits another.

    Args:
        all_moved: what there is to draw on, moved to the target; may contain `found`. What new seeds refuted does not
            count.
    """
    apart = found.distance
    if not apart or not apart.total or apart.workload or not decays_weights(found.config):
        return found
    others = [other for other in all_moved if other is not found and _decays_alike(found, other)]
    if not others:
        return found
    sources = (found, *others)
    logarithms = [math.log(with_defaults(one.config)["weight_decay"]) for one in sources]
    mean = statistics.fmean(logarithms, [_weight_of_decay(one, target) for one in sources])
    before = with_defaults(found.config)["weight_decay"]
    after = float(format(math.exp(mean), ".4g"))
    if math.isclose(before, after, rel_tol=1e-3):
        return found
    models = "another tuned model" if len(others) == 1 else f"{len(others)} other tuned models"
    reason = f"drawn to the decay of {models} of its data: × {after / before:.3g}"
    drawn = _with_argument(found, "weight_decay", after, reason, MEASURED)
    return dataclasses.replace(drawn, intervals=_intervals(drawn.config, apart))


def spread_of_lr(apart: Distance) -> float:
    """The standard deviation of ln lr at a distance."""
    of_others = dataclasses.replace(apart, depth=0.0).total
    return math.hypot(LR_SPREAD[0], LR_SPREAD[1] * of_others, DEPTH_SPREAD * apart.depth)


def with_lr(found: Transferred, factor: float) -> Transferred:
    """The config with another learning rate, which is what its changes end with."""
    lr = float(format(found.config.arguments["lr"] * factor, ".4g"))
    varied = _with_argument(found, "lr", lr, f"× {factor:g} on purpose", ON_PURPOSE)
    return dataclasses.replace(varied, lr_factor=factor)


def _with_argument(found: Transferred, name: str, after: float, reason: str, source: str) -> Transferred:
    """The config with another value of an argument, beside what the rules say."""
    by_rules = next((one for one in found.changes if one.name == name), None)
    if by_rules is None:
        change = Change(name, with_defaults(found.config)[name], after, reason, source)
    else:
        reasons, sources = f"{by_rules.reason}; {reason}", f"{by_rules.source}; {source}"
        change = Change(name, by_rules.before, after, reasons, sources)
    config = dataclasses.replace(found.config, arguments={**found.config.arguments, name: after})
    changes = [change if one is by_rules else one for one in found.changes]
    return dataclasses.replace(found, config=config, changes=changes if by_rules else [*changes, change])


def _decays_alike(one: Transferred, other: Transferred) -> bool:
    """True if a decay means the same to both, and the other one's model has the target's data and loss."""
    if other.distance is None or other.distance.workload or not decays_weights(other.config):
        return False
    if other.origin.source.status is EvidenceStatus.REFUTED:
        return False
    return _kind_of_decay(one.config) == _kind_of_decay(other.config)


def _kind_of_decay(config: TunedConfig) -> tuple[str, str | None, StepKind, bool]:
    """Optimizer, member of the family and kind of step length, with which lr × decay goes, and whether the decay is
    independent of it."""
    is_independent = config.arguments.get("weight_decay_type") == "independent"
    return config.optimizer, member_of(config), step_kind(config.optimizer, config.arguments), is_independent


def _weight_of_decay(found: Transferred, target: Situation) -> float:
    assert found.distance is not None
    assert found.origin.situation is not None
    passes = math.log2(target.num_examples / found.origin.situation.num_examples)
    return 1 / max(math.hypot(found.distance.total, OF_PASSES * passes), LEAST_DISTANCE) ** 2


def _moved(target: Situation, stored: Sequence[TransferCandidate]) -> Iterator[Transferred]:
    shipped = (member.candidate() for member in shipped_members())
    for candidate in (*stored, *(one for one in shipped if one.config.optimizer == "shampoo")):
        if candidate.config.optimizer in FOR_ADAPTERS and not target.features.has_adapters:
            continue
        yield transferred(candidate.config, candidate, target)


def counted_octaves(candidate: TransferCandidate, apart: Distance) -> float:
    """The octaves that a tuned model at a distance counts as: `SHIPPED_APART` more if it is of the shipped table."""
    return apart.total + (SHIPPED_APART if candidate.source.kind is SourceKind.SHIPPED else 0.0)


def _total(found: Transferred) -> float:
    assert found.distance is not None
    return found.distance.total


def _apart(found: Transferred) -> float:
    assert found.distance is not None
    return counted_octaves(found.origin, found.distance)


def _place(found: Transferred) -> tuple[int, float]:
    """Refuted configs come last, then the nearest first, of equally near ones the confirmed ones."""
    status = found.origin.source.status or EvidenceStatus.PROVISIONAL
    return int(_is_refuted(found)), _apart(found) + 0.1 * status.rank


def _intervals(config: TunedConfig, apart: Distance) -> list[ParameterInterval]:
    spreads = {"lr": spread_of_lr(apart), "weight_decay": math.hypot(DECAY_SPREAD[0], DECAY_SPREAD[1] * apart.total)}
    found = []
    for name, spread in spreads.items():
        value = config.arguments.get(name)
        if value:
            factor = math.exp(_DEVIATIONS * spread)
            found.append(ParameterInterval(name, float(f"{value / factor:.3g}"), float(f"{value * factor:.3g}")))
    return found


def _begun(target: Situation) -> list[Transferred]:
    return [transferred(candidate.config, candidate, target) for candidate in begun_for_adapters()]


def _as_published(candidate: TransferCandidate) -> Transferred:
    return Transferred(candidate.config, candidate, None, [], [])
