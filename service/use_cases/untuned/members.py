"""The tuned models of a project, with their trials, that count in the common answer of several models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from search_spaces import Scalar, SearchSpace, preset
from search_spaces.fitting import fit
from search_spaces.optimizers import ARGUMENTS
from service.domain import Direction, TrialState
from service.evidence.best_values import is_of_machine
from service.evidence.in_words.wording import counted
from service.specification.search.pauses import first_pause
from service.store.repositories import MeasurementRepository, TrialColumnsRepository, TrialOfModel
from service.store.session import Session
from service.transfer.candidates import EarlyValue, TransferCandidate, TunedTrial, is_alike
from service.transfer.pooled import PoolMember, with_length
from service.transfer.ranking import is_near
from service.transfer.rules import TunedConfig, with_defaults
from service.transfer.situation import FamilyMember, Situation
from service.use_cases.untuned.transferring import stored_candidates
from trainers.stored_config import StoredConfig

MAX_MEMBERS = 16
"""The most tuned models of a project that count, the nearest ones, by judgement: about as many as the shipped table
has."""
MAX_TRIALS = 64
"""The most trials of each, the newest, with pruned ones last; by judgement: more than twice as many as the table's
models have. With all of them the model takes two seconds of a processor, and a third of a second with only the
table's."""
MIN_TRIALS = 4
"""The fewest trials with a value, at the end or where they were pruned, that a model must have, by judgement: fewer
hardly show which config is better."""
MEANINGS = ("weight_decay_type", "epsilon_type")
"""Choices that decide the meaning of a number."""


@dataclass(frozen=True, slots=True)
class OwnMembers:
    """The tuned models of a project that count."""

    members: tuple[PoolMember, ...] = ()
    remarks: tuple[str, ...] = ()
    """Remarks about models and trials that were left out because there are too many, for a person."""


def own_members(
    session: Session, target: Situation, methods: Sequence[FamilyMember], *, project: str | None
) -> OwnMembers:
    """The nearest tuned models of a project, once for each method of which they have trials.

    Models with a valid recommendation count, as when each is moved alone. A model whose job minimised a time or bytes
    does not count: a fast config need not learn well.

    Args:
        methods: the members of Shampoo's family that answer.
        project: the project whose jobs count; None: any.
    """
    near = [
        candidate for candidate in stored_candidates(session, target, project=project) if is_near(candidate, target)
    ]
    members, num_models, num_seen, num_cut = list[PoolMember](), 0, 0, 0
    for candidate in near:
        if num_models == MAX_MEMBERS:
            break
        num_seen += 1
        ended = _ended_trials(session, candidate)
        found = [_member(candidate, name, ended.of_space(preset(name))) for name in methods]
        enough = [
            one
            for one in found
            if sum(trial.was_stopped or trial.value is not None for trial in one.trials) >= MIN_TRIALS
        ]
        if enough:
            members += enough
            num_models += 1
            num_cut += ended.num_all > MAX_TRIALS
    remarks = []
    if farther := len(near) - num_seen:
        remarks.append(f"of the jobs near this model the {MAX_MEMBERS} nearest have a say, {farther} farther ones none")
    if num_cut:
        jobs = counted(num_cut, "job")
        remarks.append(f"of {jobs} with more trials {MAX_TRIALS} have a say, the newest, those that were pruned last")
    return OwnMembers(tuple(members), tuple(remarks))


def _member(candidate: TransferCandidate, preset_name: str, trials: list[TunedTrial]) -> PoolMember:
    source, situation = candidate.source, candidate.situation
    assert situation is not None, "what is stored was tuned for one model"
    is_minimised = source.direction is Direction.MINIMIZE
    name = with_length(source.name, situation)
    return PoolMember(name, preset_name, situation, tuple(trials), is_minimised, source.job_id)


@dataclass(frozen=True, slots=True)
class _EndedTrials:
    """The ended trials of a tuned model, whatever their method."""

    trials: Sequence[TrialOfModel] = ()
    num_all: int = 0
    """The number of which they are the newest."""
    firsts: Mapping[str, EarlyValue] = field(default_factory=dict)
    """The first value of each complete trial from the first rung on, by the trial's id."""
    num_steps: int = 0

    def of_space(self, space: SearchSpace) -> list[TunedTrial]:
        """Trials of the space's method.

        A pruned trial counts from the first rung on, and only together with a trial that was trained to its end, which
        shows how far values there are from the end.
        """
        first, found = first_pause(self.num_steps), list[TunedTrial]()
        for trial in self.trials:
            parameters = _parameters(space, StoredConfig.of(trial.config))
            if parameters is None:
                continue
            if trial.state is not TrialState.PRUNED:
                early = self.firsts.get(trial.id)
                is_before = early is not None and early.step < self.num_steps
                found.append(TunedTrial(trial.value, parameters, early if is_before else None))
            elif trial.value is not None and trial.step >= first:
                found.append(TunedTrial(None, parameters, EarlyValue(trial.step, trial.value), was_stopped=True))
        if any(trial.early is not None and trial.value is not None for trial in found):
            return found
        return [trial for trial in found if not trial.was_stopped]


def _ended_trials(session: Session, candidate: TransferCandidate) -> _EndedTrials:
    """The newest ended trials of a tuned model; none where the objective is a property of the machine."""
    source, situation = candidate.source, candidate.situation
    assert source.job_id is not None
    assert situation is not None
    assert situation.digest is not None
    if source.metric is None or is_of_machine(source.metric):
        return _EndedTrials()
    ended = TrialColumnsRepository(session).of_one_model(
        source.job_id,
        optimizer="shampoo",
        fingerprint=situation.digest,
        batch_size=situation.batch_size,
        num_steps=situation.num_steps,
        limit=MAX_TRIALS,
    )
    whole = [trial.id for trial in ended.trials if trial.state is TrialState.COMPLETED]
    first = first_pause(situation.num_steps)  # from there on, values before the end count
    measured = MeasurementRepository(session).first_from(whole, source.metric, step=first)
    firsts = {trial_id: EarlyValue(*point) for trial_id, point in measured.items()}
    return _EndedTrials(ended.trials, ended.num_all, firsts, situation.num_steps)


def _parameters(space: SearchSpace, stored: StoredConfig) -> dict[str, Scalar] | None:
    """A trial's config as an assignment of the space, clipped to its ranges; None: it is of another method."""
    config = TunedConfig(stored.optimizer, stored.arguments, stored.schedule)
    arguments = ARGUMENTS[space.optimizer]
    if not is_alike(space, config) or any(
        config.arguments.get(name, arguments[name].default) != space.fixed.get(name, arguments[name].default)
        for name in MEANINGS
    ):
        return None
    searched = {parameter.name for parameter in space.parameters}
    flat = TunedConfig(stored.optimizer, with_defaults(config), stored.schedule).flat
    fitted = fit(space, {name: value for name, value in flat.items() if name in searched})
    return None if fitted is None else fitted[0]
