"""The answer of many tuned models together, as plain values: those of the shipped table and those of a project's jobs.
What computes it needs NumPy and is `service.scheduler.policy.pooled_trials`, in a process of its own."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from search_spaces import Scalar, preset
from service.evidence.in_words.wording import counted
from service.transfer.candidates import (
    MemberShare,
    ShippedMember,
    Source,
    SourceKind,
    TransferCandidate,
    TunedTrial,
    is_alike,
    shipped_members,
    source_name,
)
from service.transfer.rules import Change, TunedConfig
from service.transfer.situation import Situation

NUM_NAMED = 3
"""Models that are named with their share, at most, by judgement."""
NOISE_PER_SQUARE = 0.3
"""Variance of the noise for a distance of one octave; it grows with the square of the distance, and the trials of each
model have variance 1: two octaves away they are half noise. By judgement, knowing the members that
`tests.benchmarks.answers.transfer` holds out."""
MEASURED = "measured (tests.benchmarks.answers.transfer --train)"
"""The source of a value that several tuned models have together: measured with those of the shipped table."""


@dataclass(frozen=True, slots=True)
class PoolMember:
    """A tuned model whose trials have a say."""

    name: str
    """The name of the model for a person."""
    preset: str
    """The preset that the trials are of."""
    situation: Situation
    trials: Sequence[TunedTrial]
    is_minimised: bool = True
    """True if less of the trials' values is better."""
    job_id: str | None = None
    """The job that tuned it; None: it is of the shipped table."""

    @classmethod
    def of(cls, member: ShippedMember) -> Self:
        """A member of the shipped table; those of one model may differ in the length of the training."""
        name = source_name(member.workload, member.options, member.situation.batch_size)
        return cls(with_length(name, member.situation), member.preset, member.situation, member.trials)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The member that `dataclasses.asdict` gave."""
        trials = tuple(map(TunedTrial.from_json, content["trials"]))
        return cls(**{**content, "situation": Situation.from_json(content["situation"]), "trials": trials})


@dataclass(frozen=True, slots=True)
class PoolQuestion:
    """The question what several tuned models say together of a model that was never tuned."""

    target: Situation
    presets: tuple[str, ...]
    """The presets whose trials are asked for, one answer for each."""
    own: tuple[PoolMember, ...]
    """The models that jobs of a project tuned, once for each preset of which they have trials."""
    asks_table: bool
    """True if those of the shipped table are asked, too."""

    def members(self, preset_name: str) -> list[PoolMember]:
        """All that are asked about a preset; fewer than two say nothing together."""
        own = [member for member in self.own if member.preset == preset_name]
        return [*(table_members(preset_name) if self.asks_table else ()), *own]

    def to_text(self) -> str:
        """The question for another process; equal questions have the same text."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The question that `to_text` gave."""
        content = json.loads(text)
        own = tuple(map(PoolMember.from_json, content["own"]))
        return cls(Situation.from_json(content["target"]), tuple(content["presets"]), own, content["asks_table"])


@dataclass(frozen=True, slots=True)
class PooledAnswer:
    """The config for which all tuned models together expect the best objective."""

    preset: str
    parameters: Mapping[str, Scalar]
    """Parameters of the preset."""
    num_trials: int
    """Trials of all the models."""
    shares: tuple[MemberShare, ...]
    """The shares of all models, the largest first."""
    remarks: tuple[str, ...] = ()
    """Remarks on who was asked, for a person."""

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The answer that `dataclasses.asdict` gave."""
        shares = tuple(MemberShare(**share) for share in content["shares"])
        return cls(**{**content, "shares": shares, "remarks": tuple(content["remarks"])})

    @property
    def job_ids(self) -> frozenset[str]:
        """The jobs whose trials have a say."""
        return frozenset(one.job_id for one in self.shares if one.job_id is not None)

    def asked(self, candidate: TransferCandidate) -> bool:
        """True if a tuned model is among those that answer, and was tuned with their method."""
        source = candidate.source
        if not is_alike(preset(self.preset), candidate.config):
            return False
        if source.kind is SourceKind.SHIPPED:
            return any(one.job_id is None for one in self.shares)
        return source.job_id in self.job_ids

    def config(self, weight_decay: float) -> TunedConfig:
        """The config as a trial has it, with this weight decay."""
        assigned = preset(self.preset).assign({**self.parameters, "weight_decay": weight_decay})
        return TunedConfig(assigned.optimizer, assigned.optimizer_arguments, {"decay": "cosine", **assigned.schedule})

    def origin(self, nearest: TransferCandidate) -> TransferCandidate:
        """The origin of that config, for a person; `nearest`: that of the nearest model."""
        models = f"{counted(len(self.shares), 'tuned model')} together, the nearest {nearest.source.name}"
        return dataclasses.replace(
            nearest,
            source=Source(
                SourceKind.STORE if self.job_ids else SourceKind.SHIPPED,
                models,
                metric=nearest.source.metric,
                num_trials=self.num_trials,
                shares=self.shares,
            ),
            remarks=(*self.remarks, *nearest.remarks),
        )

    def changes(self, tuned: TunedConfig, config: TunedConfig) -> list[Change]:
        """The values of `config` that differ from those of the nearest model's own one, each with its reason."""
        of_models = f"of one model of the {self.num_trials} trials of {counted(len(self.shares), 'tuned model')}"
        reason = f"best {of_models}, moved here and weighed by distance"
        source = f"{MEASURED}, without the jobs" if self.job_ids else MEASURED
        found = []
        for name in (name for name in self.parameters if name != "weight_decay"):
            before, after = tuned.flat.get(name), config.flat[name]
            if isinstance(before, int | float) and isinstance(after, int | float) and before != after:
                found.append(Change(name, before, after, reason, source))
        return found


@dataclass(frozen=True, slots=True)
class PooledAnswers:
    """The answers of tuned models together about one that was never tuned."""

    of_presets: tuple[PooledAnswer, ...]
    """One for each preset, the one to try first at the front."""

    def to_json(self) -> dict[str, Any]:
        """The answers for another process."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The answers that `to_json` gave."""
        return cls(tuple(map(PooledAnswer.from_json, content["of_presets"])))

    def with_remarks(self, remarks: tuple[str, ...]) -> Self:
        """The answers with further remarks on who was asked."""
        return type(self)(tuple(dataclasses.replace(one, remarks=(*one.remarks, *remarks)) for one in self.of_presets))


@dataclass(frozen=True, slots=True)
class NotPooled:
    """No answer of all tuned models together, where one was wanted."""

    why: str
    """The reason, for a person."""


def added_noise(octaves: float) -> float:
    """The variance of the noise that a tuned model's trials are assumed to have at that distance."""
    return NOISE_PER_SQUARE * octaves**2


def with_length(name: str, situation: Situation) -> str:
    """A model's name with the length of its training, for a person."""
    return f"{name}, {situation.num_steps} steps"


def table_members(preset_name: str) -> list[PoolMember]:
    """The members of the shipped table that were tuned in a preset."""
    return [PoolMember.of(member) for member in shipped_members() if member.preset == preset_name]


def shares_in_words(shares: Sequence[MemberShare]) -> str:
    """The weights that the trials of several models have, for a person: the largest by name."""
    named = [
        f"{one.share:.0%} {one.name}" + (f" (job {one.job_id})" if one.job_id else "") for one in shares[:NUM_NAMED]
    ]
    if rest := shares[NUM_NAMED:]:
        named.append(f"{sum(one.share for one in rest):.0%} {counted(len(rest), 'other model')}")
    return f"what the models' trials weigh here: {'; '.join(named)}"
