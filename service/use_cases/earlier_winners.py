"""Winners of earlier jobs, and configs of similar models, with which a new job begins. They are looked up when it is
submitted, or when its first run begins, and become a part of its stored specification, so the trials are the same
whatever finishes later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pydantic import JsonValue

from search_spaces.fitting import fit
from service.domain import JobState, Side
from service.evidence.types import Evidence
from service.specification.identity import ModelOfJob
from service.specification.job import (
    MAX_PINNED,
    MAX_SOURCE_LENGTH,
    EarlierWinner,
    JobSpecification,
    KnownConfigs,
    MovedConfig,
    Pinned,
)
from service.specification.planning import JobPlan
from service.specification.search.method import search_method
from service.store.models import Job
from service.store.repositories import JobRepository, RecommendationRepository, TrialRepository
from service.store.session import Session
from service.transfer.candidates import shipped_members
from service.transfer.known import known_of
from service.use_cases.untuned.transferring import situation_of, stored_candidates

MAX_WINNERS = 5
"""The most winners for each side that asks for them."""
JOBS_LOOKED_AT = 50
"""The number of a model's newest recommendations that are searched."""


def resolve_winners(
    session: Session, plan: JobPlan, of_model: ModelOfJob | None = None, *, project: str
) -> JobSpecification:
    """The specification of `plan` with each `winners` replaced by the winners of earlier jobs of the project, and each
    `nearest` by configs of the nearest tuned models, if there are any.

    Args:
        of_model: the model that the job trains; None only if neither is asked for.
    """
    asked = zip(plan.spaces, plan.specification.pinned_of_sides, strict=True)
    return _with_pinned(
        plan.specification, (_resolved(session, plan, of_model, side, pinned, project) for side, pinned in asked)
    )


def with_known_configs(session: Session, plan: JobPlan, of_model: ModelOfJob, *, project: str) -> JobSpecification:
    """The specification of `plan` whose search and baselines also begin with configs of the nearest tuned models: each
    with as many as the one for which the fewest are known.

    Args:
        of_model: the model that the job trains.
    """
    specification, found = plan.specification, list[list[MovedConfig]]()
    for side, pinned in zip(plan.spaces, specification.pinned_of_sides, strict=True):
        known = find_nearest(session, plan, of_model, side, project=project)
        new = [config for config in known if plan.spaces[side].check(dict(config.parameters)) not in plan.pinned[side]]
        found.append(new[: MAX_PINNED - len(pinned)])
    fewest = min(map(len, found))
    both = zip(specification.pinned_of_sides, found, strict=True)
    return _with_pinned(specification, ([*pinned, *new[:fewest]] for pinned, new in both), known_configs="found")


def without_known_configs(specification: JobSpecification) -> JobSpecification:
    """The specification of a job before configs of models like its own were found: they are to be looked up anew, for
    one side where `nearest` asked for them, and for all with the sampler `auto` only as long as it is that."""
    asked, are_found = specification.known_configs, specification.known_configs == "found"
    if are_found:
        asked = "auto" if search_method(specification)[0] == "auto" else "nearest"
    of_sides = (_as_asked(pinned, known_are_found=are_found) for pinned in specification.pinned_of_sides)
    return _with_pinned(specification, of_sides, known_configs=asked)


def find_winners(
    session: Session, plan: JobPlan, fingerprint: str, side: Side, *, project: str
) -> Iterator[EarlierWinner]:
    """The best configs that earlier jobs of the project found for the model of this fingerprint and the objective of
    `plan`, with the optimizer of its side; the newest job's first.

    A job counts if it succeeded, and a trial if its model had the fingerprint. Parameters that its trials varied keep
    their values if the side's space also has them, and they are active under its conditions; numbers out of range are
    clipped. All others take the space's defaults. A config is left out if it has none of the parameters, or a value
    that is not a choice. So is the last config of a fork, because no training used it from the start.
    """
    space = plan.spaces[side]
    jobs, trials = JobRepository(session), TrialRepository(session)
    newest = RecommendationRepository(session).of_fingerprint(fingerprint, project=project, limit=JOBS_LOOKED_AT)
    for recommendation in newest:
        job = jobs.get(recommendation.job_id)
        if job.state is not JobState.SUCCEEDED or not _has_same_objective(job, plan):
            continue
        for number, value in _winners_of(recommendation.evidence, space.optimizer):
            trial = trials.get(job.id, number)
            fits = trial.fingerprint == fingerprint and trial.forked_from is None
            arguments = trial.stored_config.arguments
            fitted = fit(space, trial.parameters, held=arguments) if fits else None
            if fitted is None or not _is_possible(plan, side, dict(fitted[0])):
                continue
            values, clipped = dict[str, JsonValue](fitted[0]), fitted[1]
            yield EarlierWinner(job_id=job.id, trial=number, value=value, parameters=values, clipped=clipped)


def find_nearest(
    session: Session, plan: JobPlan, of_model: ModelOfJob, side: Side, *, project: str
) -> Iterator[MovedConfig]:
    """Configs of the nearest tuned models, from the project and from the shipped table, moved to the job's model by
    scaling rules and fitted to the side's space; the nearest first."""
    if of_model.shape is None:
        return
    target = situation_of(plan, of_model.shape, digest=of_model.fingerprint)
    stored = stored_candidates(session, target, project=project, with_baselines=True)
    shipped = [member.candidate() for member in shipped_members()]
    for known in known_of(plan.spaces[side], [*stored, *shipped], target):
        parameters: dict[str, JsonValue] = dict(known.parameters)
        if _is_possible(plan, side, parameters):
            yield MovedConfig(
                source=known.source.name[:MAX_SOURCE_LENGTH],
                distance=known.distance,
                recommendation_id=known.source.recommendation_id,
                parameters=parameters,
                clipped=known.clipped,
            )


def _winners_of(evidence: Evidence, optimizer: str) -> Iterator[tuple[int, float]]:
    """Number and value of the best trials with this optimizer that the evidence names."""
    named = set()
    for winner in (evidence.best, evidence.baseline):
        if winner is not None and winner.optimizer == optimizer:
            named.add(winner.number)
            yield winner.number, winner.value
    for best in evidence.baselines:
        if best.optimizer != optimizer or best.number is None or best.value is None:
            continue
        if best.number not in named:
            yield best.number, best.value


def _has_same_objective(job: Job, plan: JobPlan) -> bool:
    return job.objectives[0] == plan.objectives[0]


def _is_possible(plan: JobPlan, side: Side, values: dict[str, JsonValue]) -> bool:
    try:
        plan.trial_config(side, values)
    except ValueError:
        return False
    return True


def _with_pinned(
    specification: JobSpecification, of_sides: Iterable[Pinned], *, known_configs: KnownConfigs | None = None
) -> JobSpecification:
    """The specification with these entries in `pinned` of its search and its baselines."""
    search, *baselines = of_sides
    return specification.model_copy(
        update={
            "pinned": search,
            "baselines": [
                baseline.model_copy(update={"pinned": pinned})
                for baseline, pinned in zip(specification.baselines, baselines, strict=True)
            ],
            "known_configs": known_configs or specification.known_configs,
        }
    )


def _as_asked(pinned: Pinned, *, known_are_found: bool) -> Pinned:
    """The entries of a side before configs of models like the job's were found."""
    asked: Pinned = []
    for entry in pinned:
        if not isinstance(entry, MovedConfig):
            asked.append(entry)
        elif entry.of_one_side:
            asked += [] if "nearest" in asked else ["nearest"]
        elif not known_are_found:
            asked.append(entry)
    return asked


def _resolved(
    session: Session, plan: JobPlan, of_model: ModelOfJob | None, side: Side, pinned: Pinned, project: str
) -> Pinned:
    resolved: Pinned = []
    seen: list[object] = [entry for entry in pinned if isinstance(entry, dict)]
    room = min(MAX_WINNERS, MAX_PINNED - sum(entry not in ("winners", "nearest") for entry in pinned))
    for entry in pinned:
        if entry not in ("winners", "nearest"):
            resolved.append(entry)
            continue
        assert of_model is not None, "it is known where configs of earlier jobs are asked for"
        found = (
            find_winners(session, plan, of_model.fingerprint, side, project=project)
            if entry == "winners"
            else (
                config.model_copy(update={"of_one_side": True})
                for config in find_nearest(session, plan, of_model, side, project=project)
            )
        )
        for config in found:
            if room > 0 and config.parameters not in seen:
                seen.append(config.parameters)
                resolved.append(config)
                room -= 1
    return resolved
