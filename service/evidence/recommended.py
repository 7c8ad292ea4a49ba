"""A recommended config with its evidence, and how both are read from JSON that any version has stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass

from service.described_model import DescribedModel
from service.domain import WeightsOf
from service.evidence.parameter_groups import OwnSettings
from service.evidence.types import Evidence, EvidenceStatus, Verdict


class PasteableConfig(DescribedModel):
    """A trial's config as another training script needs it."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    workload: str
    """The name of the workload."""
    optimizer: str
    """`shampoo`, `adamw`, `sgd`, `muon`, `soap-peer` or `lora-rite`."""
    config: dict[str, Any]
    """Exactly the keyword arguments of the optimizer, e.g. `Shampoo(groups, **config)`, where `groups` are the model's
    parameters in their `parameter_groups`, or `model.parameters()` if there are none."""
    schedule: dict[str, Any]
    """Learning-rate schedule: the fields of `trainers.config.ScheduleConfig` that it uses."""
    training: dict[str, Any]
    """The settings of the training beside that: `num_steps`, `batch_size`, `gradient_clip_norm`, `accumulation_steps`,
    `precision`, `averaging` and `compression`."""
    workload_options: dict[str, Any]
    """Arguments of the workload."""
    parameter_groups: list[OwnSettings] = Field(default=[])
    """The settings that some parameters had in place of `config`, which alone does not train as was measured: which
    parameters, by rules, and their settings."""


@dataclass(frozen=True, slots=True, config=ConfigDict(use_attribute_docstrings=True))
class Ranks:
    """The processes that trained a trial."""

    number: int
    """The number of ranks in a trial's process group."""
    device: Literal["cpu", "cuda"]
    """The device of each rank."""
    num_threads: int
    """CPU threads of each."""


class RecommendedConfig(PasteableConfig):
    """The config that a job recommends, with its evidence."""

    evidence: Evidence
    """The measurements behind it, and how sure the difference is."""
    code_sha256: str | None = None
    """The hash of the code that came with the job, of which its workload or sampler is; null: none did."""
    ranks: Ranks | None = None
    """The processes that trained each of its trials; null: it was made before this was kept."""
    keeps_weights: bool = False
    """True if the job keeps the trained weights of its winners, where those were confirmed."""

    def to_json(self) -> dict[str, Any]:
        """The recommendation as JSON-able values."""
        return self.model_dump(mode="json")


@cache
def _evidence() -> TypeAdapter[Evidence]:
    """Made when the first is read."""
    return TypeAdapter(Evidence)


def weights_links(job_id: str, recommended: RecommendedConfig) -> dict[WeightsOf, str]:
    """Paths of the API at which the trained weights of the two configs are, as far as they were confirmed."""
    if not recommended.keeps_weights:
        return {}
    evidence = recommended.evidence
    configs = evidence.confirmation.configs if evidence.confirmation else []
    confirmed = {c.number for c in configs if any(result.value is not None for result in c.results)}
    winners = {WeightsOf.RECOMMENDED: evidence.best, WeightsOf.BASELINE: evidence.baseline}
    return {
        side: f"/v1/jobs/{job_id}/weights/{side}"
        for side, winner in winners.items()
        if winner is not None and winner.number in confirmed
    }


def status_of(evidence: Evidence) -> EvidenceStatus:
    """The status of the config that `evidence` is about, from its verdict and its confirmation."""
    result = evidence.confirmation
    own = next((config for config in result.configs if config.number == evidence.best.number), None) if result else None
    if own is None:
        return EvidenceStatus.PROVISIONAL
    if own.has_failed:
        return EvidenceStatus.REFUTED
    if own.mean is None:
        return EvidenceStatus.PROVISIONAL
    has_lost = evidence.verdict is Verdict.WORSE
    was_lucky = evidence.verdict is not Verdict.BETTER and own.was_lucky(evidence.direction)
    return EvidenceStatus.REFUTED if has_lost or was_lucky else EvidenceStatus.CONFIRMED


def evidence_from_json(content: Mapping[str, Any]) -> Evidence:
    """The evidence of a stored recommendation; what it lacks because it is older takes its default."""
    return _with_status(_evidence().validate_python(content), content)


def recommendation_from_json(content: Mapping[str, Any]) -> RecommendedConfig:
    """A stored recommendation; what it lacks because it is older takes its default."""
    found = RecommendedConfig.model_validate(content)
    return found.model_copy(update={"evidence": _with_status(found.evidence, content["evidence"])})


def _with_status(evidence: Evidence, content: Mapping[str, Any]) -> Evidence:
    return evidence if "status" in content else dataclasses.replace(evidence, status=status_of(evidence))
