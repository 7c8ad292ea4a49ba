"""Recommendations as plain values for their pages. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.dashboard.recommendations.asked import LABELS
from service.evidence.best_values import BestTrial, best_of
from service.evidence.comparison.confirm import compare_over_seeds
from service.evidence.formats.written import Format, Written, written
from service.evidence.in_words.standing import ConfigStanding, standing_of
from service.evidence.in_words.told_interval import told_interval
from service.evidence.in_words.words import Answer, answer_of
from service.evidence.recommended import RecommendedConfig
from service.evidence.types import Evidence
from service.store.models import RecommendationRow
from service.store.repositories import KnownValues, RecommendationQuery, StoredAnswer

NOT_COMPARED = Answer("open", "No trial of a baseline completed: there is nothing to compare it with", "")


@dataclass(frozen=True, slots=True)
class Listed:
    """A recommendation as a list shows it."""

    row: RecommendationRow
    evidence: Evidence
    is_superseded: bool
    job_name: str

    @property
    def title(self) -> str:
        """The user's own name of the model, or the workload's."""
        return self.row.model or self.row.workload

    @property
    def answer(self) -> Answer:
        """The answer to whether the config beats the baseline."""
        return answer_of(self.evidence) or NOT_COMPARED

    @property
    def standing(self) -> ConfigStanding:
        """The standing of the config: whether it held with new seeds."""
        return standing_of(self.evidence)

    @property
    def best(self) -> BestTrial:
        """The value that stands for the config."""
        return best_of(self.evidence.confirmation, self.evidence.best)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the improvement over the baseline, as it is told; None: nothing was compared over seeds, or
        by how much it is better is not known."""
        found = None if self.evidence.confirmation is None else self.evidence.confirmation.improvement
        return None if found is None or self.evidence.improvement is None else told_interval(self.evidence, found)

    @property
    def is_compared(self) -> bool:
        """True if it was compared with the baseline over seeds."""
        result = self.evidence.confirmation
        return result is not None and compare_over_seeds(result, self.evidence.direction) is not None


@dataclass(frozen=True, slots=True)
class Copy:
    """A recommended config in one of the formats in which it is taken away."""

    id: str
    title: str
    text: str | None
    """None: it cannot be said so."""
    cannot_say: Sequence[str] = ()
    """The parts of the config that the text leaves out, or says otherwise."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A filter of the form, with the values there are."""

    name: str
    label: str
    values: list[str | int]
    chosen: str | int | None


def listed(found: StoredAnswer, job_name: str) -> Listed:
    """A recommendation that was found, of the job with this name."""
    return Listed(found.row, found.row.evidence, found.is_superseded, job_name)


def choices(query: RecommendationQuery, known: Sequence[KnownValues]) -> list[Choice]:
    """The filters beside the names: each with the values there are, and the one that is asked for among them."""
    values = {each.field: each.values for each in known}
    found = []
    for name, label in LABELS.items():
        chosen = getattr(query, name)
        there_are = values.get(name, [])
        if there_are or chosen is not None:
            found.append(Choice(name, label, sorted({*there_are, *([] if chosen is None else [chosen])}), chosen))
    return found


def copies(recommendation: RecommendedConfig) -> list[Copy]:
    """The config in every format: as a training script needs it, and with its evidence as `recommend` prints it."""
    found = [written(recommendation, form) for form in Format]
    return [*of_formats(found), Copy("copy-evidence", "JSON with its evidence", _json(recommendation.to_json()))]


def of_formats(found: Sequence[Written], *, prefix: str = "copy") -> list[Copy]:
    """A config in these formats.

    Args:
        prefix: the beginning of their ids, no other one's on the page.
    """
    return [Copy(f"{prefix}-{one.format}", one.title, one.text, one.cannot_say) for one in found]


def origin(row: RecommendationRow) -> dict[str, str]:
    """The machine and versions with which the config was found, by what is said of them: the device, its ranks, and the
    versions of what was used."""
    environment = row.stored_environment
    found = {"Device": (environment and environment.device_name) or row.device, "Ranks": row.world_size}
    versions = {
        f"Version of {name}": version for name, version in (environment.versions if environment else {}).items()
    }
    return {name: str(value) for name, value in (found | versions).items() if value is not None}


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False)


def held_for(row: RecommendationRow) -> list[tuple[str, object]]:
    """The model that a recommendation is for, by its name for people; None: not known when it was made."""
    return [
        ("Model", row.model),
        ("Workload", row.workload),
        ("Objective", row.objective),
        ("Batch size", row.batch_size),
        ("Steps", row.num_steps),
        ("Precision", row.precision),
        ("Fingerprint of the model", row.fingerprint),
        ("Digest of the data", row.data_digest),
    ]
