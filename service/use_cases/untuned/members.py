"""The tuned models of a project, with their trials, that count in the common answer of several models."""

from __future__ import annotations

from dataclasses import dataclass

from search_spaces import Scalar, SearchSpace, preset
from search_spaces.fitting import fit
from search_spaces.optimizers import ARGUMENTS
from service.domain import Direction, TrialState
from service.evidence.best_values import is_of_machine
from service.evidence.in_words.wording import counted
from service.specification.search.pauses import first_pause
from service.store.repositories import MeasurementRepository, TrialColumnsRepository
from service.store.session import Session
from service.transfer.candidates import EarlyValue, TransferCandidate, TunedTrial, is_alike
from service.transfer.pooled import PRESET, PoolMember, with_length
from service.transfer.ranking import is_near
from service.transfer.rules import TunedConfig, with_defaults
from service.transfer.situation import Situation
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


def own_members(session: Session, target: Situation, *, project: str | None) -> OwnMembers:
    """The nearest tuned models of a project with their trials of the preset that answers.

    Models with a valid recommendation count, as when each is moved alone. A model whose job minimised a time or bytes
    does not count: a fast config need not learn well.

    Args:
        project: the project whose jobs count; None: any.
    """
    near = [
        candidate for candidate in stored_candidates(session, target, project=project) if is_near(candidate, target)
    ]
    space, members, num_seen, num_cut = preset(PRESET), list[PoolMember](), 0, 0
    for candidate in near:
        if len(members) == MAX_MEMBERS:
            break
        num_seen += 1
        trials, num_trials = _trials_of(session, candidate, space)
        if sum(trial.was_stopped or trial.value is not None for trial in trials) >= MIN_TRIALS:
            members.append(_member(candidate, trials))
            num_cut += num_trials > MAX_TRIALS
    remarks = []
    if farther := len(near) - num_seen:
        remarks.append(f"of the jobs near this model the {MAX_MEMBERS} nearest have a say, {farther} farther ones none")
    if num_cut:
        jobs = counted(num_cut, "job")
        remarks.append(f"of {jobs} with more trials {MAX_TRIALS} have a say, the newest, those that were pruned last")
    return OwnMembers(tuple(members), tuple(remarks))


def _member(candidate: TransferCandidate, trials: list[TunedTrial]) -> PoolMember:
    source, situation = candidate.source, candidate.situation
    assert situation is not None, "what is stored was tuned for one model"
    is_minimised = source.direction is Direction.MINIMIZE
    return PoolMember(with_length(source.name, situation), situation, tuple(trials), is_minimised, source.job_id)


def _trials_of(session: Session, candidate: TransferCandidate, space: SearchSpace) -> tuple[list[TunedTrial], int]:
    """The trials of a tuned model that are of the space's method, and the number of which they are a part.

    A pruned trial counts from the first rung on, and only together with a trial that was trained to its end, which
    shows how far values there are from the end.
    """
    source, situation = candidate.source, candidate.situation
    assert source.job_id is not None
    assert situation is not None
    assert situation.digest is not None
    if source.metric is None or is_of_machine(source.metric):
        return [], 0
    ended = TrialColumnsRepository(session).of_one_model(
        source.job_id,
        optimizer=space.optimizer,
        fingerprint=situation.digest,
        batch_size=situation.batch_size,
        num_steps=situation.num_steps,
        limit=MAX_TRIALS,
    )
    first = first_pause(situation.num_steps)  # from there on, values before the end count
    whole = [trial.id for trial in ended.trials if trial.state is TrialState.COMPLETED]
    measured = MeasurementRepository(session).first_from(whole, source.metric, step=first)
    firsts = {trial_id: EarlyValue(*point) for trial_id, point in measured.items()}
    found = list[TunedTrial]()
    for trial in ended.trials:
        parameters = _parameters(space, StoredConfig.of(trial.config))
        if parameters is None:
            continue
        if trial.state is not TrialState.PRUNED:
            early = firsts.get(trial.id)
            is_before = early is not None and early.step < situation.num_steps
            found.append(TunedTrial(trial.value, parameters, early if is_before else None))
        elif trial.value is not None and trial.step >= first:
            found.append(TunedTrial(None, parameters, EarlyValue(trial.step, trial.value), was_stopped=True))
    if not any(trial.early is not None and trial.value is not None for trial in found):
        found = [trial for trial in found if not trial.was_stopped]
    return found, ended.num_all


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
