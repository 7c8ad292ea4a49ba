"""The answer for a model that was never tuned, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.evidence.in_words.wording import counted, joined
from service.evidence.types import EvidenceStatus
from service.transfer.candidates import SourceKind, TransferCandidate, member_of
from service.transfer.pooled import NotPooled, shares_in_words
from service.transfer.ranking import CONFIDENCE, Transferred
from service.transfer.situation import FamilyMember

TABLE = "the table that comes with shampoo-tuner (small models, few trials each)"
POINTS = "the points of AlgoPerf's winning Shampoo submission"
RULES = "the scaling rules"
NOT_MOVED = (
    "Of the table that comes with shampoo-tuner no model is near enough, and published points are as they are, for "
    "models of other sizes: nothing here was moved to this one."
)
ADAPTERS = "learning rates that were measured on low-rank adapters of a small GPT-2"
ALONE = "Tuned models answer each alone, as they could not be asked together"
FOR_ALL_WEIGHTS = (
    "No job tuned low-rank adapters here: what is not from those of the small GPT-2 was tuned for models of which all "
    "weights are trained."
)


@dataclass(frozen=True, slots=True)
class UntunedAnswer:
    """Configs for a model that was never tuned, the one to try first at the front."""

    num_stored: int
    """Tuned models of the store that were compared."""
    configs: list[Transferred]
    proxy: TransferCandidate | None = None
    """The one config that was moved, where a job was named as the model's proxy."""
    trains_adapters: bool = False
    """True if low-rank adapters are what is trained of the model."""
    near: Sequence[TransferCandidate] = ()
    """Tuned models that are near enough to say something."""
    not_pooled: NotPooled | None = None
    """The reason why tuned models did not answer together; None: they did, or were not asked."""
    member: FamilyMember | None = None
    """The member of Shampoo's family that was asked for: tuned models of others had no say. None: any."""

    @property
    def rests_on_store(self) -> bool:
        """True if tuned models of the store are among the sources."""
        return any(found.origin.source.kind is SourceKind.STORE for found in self.configs)

    @property
    def says(self) -> str:
        """The grounds of the answer, for a person."""
        if self.proxy is not None:
            source, tuned = self.proxy.source, self.proxy.situation
            length = "" if tuned is None else f" and {tuned.num_steps} steps"
            return f"This rests on job {source.job_id} alone ({source.standing}), tuned for {source.name}{length}."
        return " ".join([self._rests_on, *self._caveats])

    @property
    def _rests_on(self) -> str:
        if not self.num_stored:
            return f"No tuned model with a known shape is stored here: this rests on {joined(self._built_in)}."
        if not self.rests_on_store:
            return f"{self._why_not_stored}: this rests on {joined(self._built_in)}."
        num_heard = len(self._heard)
        beside = "it" if num_heard == 1 else "them"
        return (
            f"This rests on {counted(num_heard, 'tuned model')} of this service, and beside {beside} on "
            f"{joined(self._built_in)}."
        )

    @property
    def _heard(self) -> set[str]:
        """The tuned models of the store that the configs are from, each alone or with others, by job."""
        sources = [found.origin.source for found in self.configs if found.origin.source.kind is SourceKind.STORE]
        alone = {source.job_id or source.name for source in sources if not source.shares}
        return alone | {share.job_id for source in sources for share in source.shares if share.job_id is not None}

    @property
    def _why_not_stored(self) -> str:
        if not self.near:
            which = "The one" if self.num_stored == 1 else f"Each of the {self.num_stored}"
            return f"{which} tuned here lies too far from this model to say anything"
        of_member = [one for one in self.near if self.member is None or member_of(one.config) == self.member]
        near = of_member or self.near
        is_one = len(near) == 1
        tuned = f"{counted(len(near), 'model')} near this one {'was' if is_one else 'were'} tuned here"
        if not of_member:
            return f"{tuned}, but {'its config is not' if is_one else 'none of their configs is'} of {self.member!r}"
        tuned += "" if self.member is None else f" with {self.member!r}"
        if all(candidate.source.status is EvidenceStatus.REFUTED for candidate in near):
            return f"{tuned}, but new seeds refuted {'its config' if is_one else 'their configs'}"
        return f"{tuned}, but these configs come first"

    @property
    def _built_in(self) -> list[str]:
        """The sources that the configs have beside the store."""
        kinds = {found.origin.source.kind for found in self.configs}
        has = {
            ADAPTERS: SourceKind.ADAPTERS in kinds,
            TABLE: SourceKind.SHIPPED in kinds or any(map(_has_share_of_table, self.configs)),
            POINTS: SourceKind.PUBLISHED in kinds,
            RULES: any(found.distance is not None for found in self.configs),
        }
        return [name for name, is_there in has.items() if is_there]

    @property
    def _caveats(self) -> list[str]:
        tuned_for = [found.origin.situation for found in self.configs]
        caveats = [NOT_MOVED] if self.configs and not any(tuned_for) else []
        if self.trains_adapters and not any(map(_is_of_job_on_adapters, self.configs)):
            caveats.append(FOR_ALL_WEIGHTS)
        if self.not_pooled is not None:
            caveats.append(f"{ALONE}: {self.not_pooled.why}.")
        return caveats


def _is_of_job_on_adapters(found: Transferred) -> bool:
    tuned_for = found.origin.situation
    is_stored = found.origin.source.kind is SourceKind.STORE
    return is_stored and tuned_for is not None and tuned_for.features.has_adapters


def _has_share_of_table(found: Transferred) -> bool:
    return any(one.job_id is None for one in found.origin.source.shares)


def header_of(found: Transferred) -> list[str]:
    """A config's header, in lines: all that is known of it."""
    source = found.origin.source
    lines = ["Never tried on this model.", f"From {source.name}" + (f", job {source.job_id}" if source.job_id else "")]
    if found.distance is None:
        lines[-1] += ", as published: not moved to this model."
    else:
        lines[-1] += f", {found.distance.total:.1f} octaves from this model."
    lines += [f"{one.name}: {one.before:.4g} -> {one.after:.4g} ({one.reason})" for one in found.changes]
    lines += [
        f"{one.name}: the best one is in [{one.low:g}, {one.high:g}] with {CONFIDENCE:.0%} confidence."
        for one in found.intervals
    ]
    remarks = [*([shares_in_words(source.shares)] if source.shares else []), *found.remarks]
    return [*lines, *(f"{remark[0].upper()}{remark[1:]}." for remark in remarks)]
