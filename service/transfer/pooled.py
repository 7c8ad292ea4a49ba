"""The answer of all tuned models of the shipped table together, as plain values. What computes it needs NumPy and is
`service.scheduler.policy.pooled_trials`, in a process of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from search_spaces import Scalar, preset
from service.evidence.in_words.wording import counted
from service.transfer.candidates import (
    ShippedMember,
    Source,
    SourceKind,
    TransferCandidate,
    shipped_members,
    source_name,
)
from service.transfer.rules import Change, TunedConfig

PRESET = "shampoo"
"""The preset whose trials answer. The table's others are of AdamW, which is no answer."""
NUM_NAMED = 3
"""Models that are named with their share, at most, by judgement."""
MEASURED = "measured (tests.benchmarks.answers.transfer --train)"
"""The source of a value that several tuned models have together."""


@dataclass(frozen=True, slots=True)
class MemberShare:
    """The weight that the trials of a tuned model have in the answer."""

    name: str
    """The name of the model in the table, for a person."""
    share: float
    """The shares of all models sum to 1."""


@dataclass(frozen=True, slots=True)
class PooledAnswer:
    """The config for which all tuned models together expect the least objective."""

    preset: str
    parameters: Mapping[str, Scalar]
    """Parameters of the preset."""
    num_trials: int
    """Trials of all the models."""
    shares: tuple[MemberShare, ...]
    """The shares of all models, the largest first."""

    def to_json(self) -> dict[str, Any]:
        """The answer for another process."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The answer that `to_json` gave."""
        shares = tuple(MemberShare(**share) for share in content["shares"])
        return cls(**{**content, "shares": shares})

    def config(self, weight_decay: float) -> TunedConfig:
        """The config as a trial has it, with this weight decay."""
        assigned = preset(self.preset).assign({**self.parameters, "weight_decay": weight_decay})
        return TunedConfig(assigned.optimizer, assigned.optimizer_arguments, {"decay": "cosine", **assigned.schedule})

    def origin(self, nearest: TransferCandidate) -> TransferCandidate:
        """The origin of that config, for a person; `nearest`: that of the nearest model."""
        models = f"{counted(len(self.shares), 'tuned model')} together, the nearest {nearest.source.name}"
        named = [f"{one.share:.0%} {one.name}" for one in self.shares[:NUM_NAMED]]
        if rest := self.shares[NUM_NAMED:]:
            named.append(f"{sum(one.share for one in rest):.0%} {counted(len(rest), 'other model')}")
        return dataclasses.replace(
            nearest,
            source=Source(SourceKind.SHIPPED, models, metric=nearest.source.metric, num_trials=self.num_trials),
            remarks=(f"what the models' trials weigh here: {'; '.join(named)}", *nearest.remarks),
        )

    def changes(self, tuned: TunedConfig, config: TunedConfig) -> list[Change]:
        """The values of `config` that differ from those of the nearest model's own one, each with its reason."""
        of_models = f"of one model of the {self.num_trials} trials of {counted(len(self.shares), 'tuned model')}"
        reason = f"least {of_models}, moved here and weighed by distance"
        found = []
        for name in (name for name in self.parameters if name != "weight_decay"):
            before, after = tuned.flat.get(name), config.flat[name]
            if isinstance(before, int | float) and isinstance(after, int | float) and before != after:
                found.append(Change(name, before, after, reason, MEASURED))
        return found


@dataclass(frozen=True, slots=True)
class NotPooled:
    """No answer of all tuned models together, where one was wanted."""

    why: str
    """The reason, for a person."""


def name_in_table(member: ShippedMember) -> str:
    """The name of a member for a person: those of one model may differ in the length of the training."""
    name = source_name(member.workload, member.options, member.situation.batch_size)
    return f"{name}, {member.situation.num_steps} steps"


def pooled_members() -> list[ShippedMember]:
    """The members of the shipped table whose trials answer together."""
    return [member for member in shipped_members() if member.preset == PRESET]
