"""A recommendation that is trained again: with which seeds, what it should come to, and whether it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.evidence.in_words.told_interval import told_further
from service.evidence.in_words.wording import number, signed_share
from service.evidence.types import EQUAL_WITHIN, ConfirmedConfig, Evidence


@dataclass(frozen=True, slots=True)
class Repeat:
    """A trial of the evidence that is to be trained again."""

    seed: int
    value: float
    """Its objective, as it was measured."""
    trial: int
    """Its number in the job."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """A trial of the evidence beside the same one, trained again."""

    repeat: Repeat
    value: float | None
    """Now; None: it did not come to its end."""

    @property
    def is_identical(self) -> bool:
        """True if it came to the same value, to the last digit."""
        return self.value == self.repeat.value

    @property
    def is_equal(self) -> bool:
        """True if it came to a value that counts as equal."""
        was = self.repeat.value
        return self.value is not None and abs(self.value - was) <= EQUAL_WITHIN * abs(was)


@dataclass(frozen=True, slots=True)
class Band:
    """The values that further trainings of a config are expected to have."""

    low: float
    high: float
    basis: str
    """The results that the band follows from, in words."""

    def holds(self, value: float | None) -> bool:
        """True if the value is one of them."""
        return value is not None and self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The outcome of training a recommendation again."""

    metric: str
    trials: Sequence[Repeated]
    band: Band
    is_reproduced: bool
    """True if every value falls in the band, or equals what the same seed had, which may lie outside."""


def reproduction(evidence: Evidence, trials: Sequence[Repeated]) -> Reproduction:
    """Judges a recommendation by the trials that were trained again."""
    band = band_of(evidence)
    return Reproduction(evidence.metric, trials, band, all(band.holds(one.value) or one.is_equal for one in trials))


def repeats_of(evidence: Evidence) -> list[Repeat]:
    """The trials that stand for the recommended config: those with new seeds that completed, else what found it."""
    own = _confirmed(evidence)
    found = [Repeat(one.seed, one.value, one.number) for one in own.results if one.value is not None] if own else []
    if found:
        return found
    best = evidence.best
    value = best.metrics.get(evidence.metric)
    return [Repeat(best.stored_config.seed, best.value if value is None else value, best.number)]


def band_of(evidence: Evidence) -> Band:
    """The interval that holds the value with a further seed, as the confirmation gave it; without one, what counts as
    equal to the value that one seed found."""
    result, own = evidence.confirmation, _confirmed(evidence)
    further = None if result is None or own is None else told_further(result, own)
    if result is not None and further is not None:
        return Band(*further, f"where a further seed falls in {result.confidence:.0%} of cases")
    value = repeats_of(evidence)[0].value
    margin = EQUAL_WITHIN * abs(value)
    return Band(value - margin, value + margin, f"{EQUAL_WITHIN:.1%} around what one seed found")


def _confirmed(evidence: Evidence) -> ConfirmedConfig | None:
    if evidence.confirmation is None:
        return None
    return next((config for config in evidence.confirmation.configs if config.number == evidence.best.number), None)


def other_versions(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Versions that are others now, a sentence each; what is not in use now is left out."""
    return [f"{name} is {now[name]}, and was {then[name]}" for name in then if name in now and now[name] != then[name]]


def outcome_lines(found: Reproduction) -> list[str]:
    """The outcome: a line for each trial, and the answer."""
    lines = []
    for one in found.trials:
        was = f"seed {one.repeat.seed}: {found.metric} {number(one.value)}, was {number(one.repeat.value)} in trial"
        lines.append(f"{was} {one.repeat.trial}: {_difference(one)}")
    band = found.band
    num_in = sum(band.holds(one.value) for one in found.trials)
    span = f"the band {number(band.low)} to {number(band.high)}, {band.basis}"
    num_trials = len(found.trials)
    if not found.is_reproduced:
        lines.append(f"Not reproduced: {num_in} of {num_trials} in {span}.")
    elif num_in == num_trials:
        lines.append(f"Reproduced: {'it falls' if num_in == 1 else f'all {num_in} fall'} in {span}.")
    else:
        inside = "" if num_trials == 1 else f"{num_in} of {num_trials} in the band, and "
        outside = "its" if num_trials == 1 else "the rest at their"
        lines.append(f"Reproduced: {inside}{outside} old value, outside of {span}.")
    return lines


def _difference(one: Repeated) -> str:
    if one.value is None:
        return "it did not come to its end"
    if one.is_identical:
        return "the same to the last digit"
    if one.repeat.value == 0:
        return f"{one.value - one.repeat.value:+.3g}"
    return signed_share((one.value - one.repeat.value) / abs(one.repeat.value))
