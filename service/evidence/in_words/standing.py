"""The standing of a recommended config in words: whether it held with new seeds, short for lists and in a sentence."""

from __future__ import annotations

from dataclasses import dataclass

from service.evidence.in_words.wording import counted
from service.evidence.types import Evidence, EvidenceStatus, Verdict


@dataclass(frozen=True, slots=True)
class ConfigStanding:
    """The status of a recommended config, with what was confirmed of it."""

    word: str
    """The status with its reserve: `confirmed up to the noise`."""
    why: str
    """The rest of the sentence."""

    @property
    def short(self) -> str:
        """The words of lists, beside a verdict: `config confirmed up to the noise`. It is the config that was
        confirmed, and no difference from the baseline."""
        return f"config {self.word}"

    @property
    def heading(self) -> str:
        """The word at the beginning of a line: `Confirmed up to the noise`."""
        return f"{self.word[0].upper()}{self.word[1:]}"

    @property
    def sentence(self) -> str:
        """`Confirmed up to the noise: the config held its value with 3 new seeds`."""
        return f"{self.heading}: {self.why}"


def standing_of(evidence: Evidence) -> ConfigStanding:
    """The standing of the recommended config. Beside a verdict that is open, "confirmed" alone would read as praise;
    and a value that few seeds do not tell from a worse one has not simply held."""
    result = evidence.confirmation
    own = next((found for found in result.configs if found.number == evidence.best.number), None) if result else None
    num_seeds = 0
    if result is not None and own is not None:
        num_seeds = len(own.results) if own.mean is None else len(result.seeds)
    with_seeds = f"with {counted(num_seeds, 'new seed')}"
    fell_behind = f"{with_seeds} it fell behind the value that it was found with"
    match evidence.status:
        case EvidenceStatus.CONFIRMED:
            if own is not None and own.was_lucky(evidence.direction):
                return ConfigStanding("confirmed against the baseline", f"{fell_behind}, and beat the baseline")
            return ConfigStanding("confirmed up to the noise", f"the config held its value {with_seeds}")
        case EvidenceStatus.REFUTED:
            if own is not None and own.has_failed:
                return ConfigStanding("refuted", f"it failed {with_seeds}")
            if evidence.verdict is Verdict.WORSE:
                return ConfigStanding("refuted", f"it lost to the baseline {with_seeds}")
            return ConfigStanding("refuted", fell_behind)
    return ConfigStanding("provisional", "what one seed found, and not trained again")
