"""The best value of a job's search, and of its baseline: one number with its origin, and which of two is better.

While a job runs, it is what the best completed trial reached, with its one seed. Once the job has ended, it is what its
recommendation says: the mean over the new seeds for configs that were trained again, because the best of many trials is
a lucky one.
"""

from __future__ import annotations

import math

from pydantic import ConfigDict, computed_field
from pydantic.dataclasses import dataclass

from service.domain import Direction
from service.evidence.types import EQUAL_WITHIN, ConfirmationResult, Evidence, EvidenceStatus, Verdict, Winner
from trainers.config import SUMMARY_PREFIXES
from trainers.workload.description import LOOP_METRICS


@dataclass(frozen=True, slots=True, config=ConfigDict(use_attribute_docstrings=True))
class BestTrial:
    """The best trial of a phase, and the value that stands for its config."""

    number: int
    """The number of the trial within its job."""
    value: float
    """The final value; of a config that was confirmed, the mean over the new seeds."""
    num_new_seeds: int = 0
    """New seeds that `value` is the mean of; 0: it is the value of one trial, with one seed."""
    standard_deviation: float | None = None
    """The standard deviation over the new seeds, of the sample."""

    @computed_field  # type: ignore[prop-decorator]  # pydantic's documented order
    @property
    def basis(self) -> str:
        """The origin of the value, for a person: `search value, one seed`, or `mean of 3 new seeds`."""
        return f"mean of {self.num_new_seeds} new seeds" if self.num_new_seeds else "search value, one seed"


def best_of(result: ConfirmationResult | None, winner: Winner) -> BestTrial:
    """The best value of a phase, from the winner of it that the evidence names.

    Args:
        result: the evidence's confirmation.
    """
    for config in result.configs if result is not None else []:
        if config.number == winner.number and result is not None and config.mean is not None:
            return BestTrial(winner.number, winner.value, len(result.seeds), config.standard_deviation)
    return BestTrial(winner.number, winner.value)


def is_of_machine(metric: str) -> bool:
    """True if a metric, or what sums it up, is of the machine more than of the model, as times and bytes are."""
    name = next((metric.removeprefix(prefix) for prefix in SUMMARY_PREFIXES if metric.startswith(prefix)), metric)
    return name in LOOP_METRICS and name != "train_loss"


def score_of(evidence: Evidence) -> float | None:
    """The recommended config's value as a number of which more is better, whatever the objective: what tells the better
    one of two jobs' answers. None: it is of a machine, as times and bytes are, or the config failed with a new seed.
    """
    if is_of_machine(evidence.metric):
        return None
    best = best_of(evidence.confirmation, evidence.best)
    if evidence.status is EvidenceStatus.REFUTED and not best.num_new_seeds:
        return None
    return -best.value if evidence.direction is Direction.MINIMIZE else best.value


def improvement_over(baseline: float, best: float, direction: Direction) -> float | None:
    """The gain of `best` over `baseline`, as a share of it: negative if worse, None if infinite."""
    difference = baseline - best if direction is Direction.MINIMIZE else best - baseline
    ratio = difference / abs(baseline) if baseline else math.inf
    return ratio if math.isfinite(ratio) else None


def compare(best: float, baseline: float, direction: Direction) -> Verdict:
    """The verdict on two best values; those within `EQUAL_WITHIN` are equal."""
    improvement = improvement_over(baseline, best, direction)
    if best == baseline or (improvement is not None and abs(improvement) <= EQUAL_WITHIN):
        return Verdict.EQUAL
    return Verdict.BETTER if direction.is_better(best, than=baseline) else Verdict.WORSE
