"""Winners of earlier jobs, to begin a new one with. They are found when it is submitted and become a part of its stored
specification, so that the same is tried whatever finishes later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import JsonValue

from search_spaces import Categorical, Integer, Parameter, Scalar, SearchSpace
from search_spaces.optimizers import ARGUMENTS
from search_spaces.parameters import is_active, is_same
from service.domain import JobState, Phase, Side
from service.specification.job import MAX_PINNED, EarlierWinner, JobSpecification, Pinned
from service.specification.planning import JobPlan
from service.store.models import Job
from service.store.repositories import JobRepository, RecommendationRepository, TrialRepository
from service.store.session import Session

MAX_WINNERS = 5
"""For each side that asks for them."""
JOBS_LOOKED_AT = 50
"""The number of a model's newest recommendations that are searched."""


def resolve_winners(
    session: Session, plan: JobPlan, fingerprint: str | None = None, *, project: str
) -> JobSpecification:
    """The specification of `plan` with each `winners` replaced by the winners of earlier jobs of the project, if there
    are any.

    Args:
        fingerprint: of the job's model; None only where no winners are asked for.
    """
    specification = plan.specification
    return specification.model_copy(
        update={
            "pinned": _resolved(session, plan, fingerprint, Phase.SEARCH, specification.pinned, project),
            "baselines": [
                baseline.model_copy(
                    update={"pinned": _resolved(session, plan, fingerprint, side, baseline.pinned, project)}
                )
                for side, baseline in zip(plan.baselines, specification.baselines, strict=True)
            ],
        }
    )


def find_winners(
    session: Session, plan: JobPlan, fingerprint: str, side: Side, *, project: str
) -> Iterator[EarlierWinner]:
    """The best configs that earlier jobs of the project found for the model of this fingerprint and the objective of
    `plan`, with the optimizer of its side; the newest job's first.

    A job counts if it succeeded, and a trial if its model had the fingerprint. Of the parameters that its trials
    varied, those that the side's space has, too, keep their values, as far as the conditions of the space let them be
    active; numbers out of range are clipped. All others take the space's defaults. A config that has none of the
    parameters, or a value that is no choice, is left out; so is the last config of a fork, with which alone nothing was
    trained from the start.
    """
    space = plan.spaces[side]
    jobs, trials = JobRepository(session), TrialRepository(session)
    newest = RecommendationRepository(session).of_fingerprint(fingerprint, project=project, limit=JOBS_LOOKED_AT)
    for recommendation in newest:
        job = jobs.get(recommendation.job_id)
        if job.state is not JobState.SUCCEEDED or not _has_same_objective(job, plan):
            continue
        for number, value in _winners_of(recommendation.content["evidence"], space.optimizer):
            trial = trials.get(job.id, number)
            fits = trial.fingerprint == fingerprint and trial.forked_from is None
            arguments = trial.config["optimizer"]["arguments"]
            fitted = fit(space, trial.parameters, held=arguments) if fits else None
            if fitted is None or not _is_possible(plan, side, fitted[0]):
                continue
            values, clipped = fitted
            yield EarlierWinner(job_id=job.id, trial=number, value=value, parameters=values, clipped=clipped)


def _winners_of(evidence: Mapping[str, Any], optimizer: str) -> Iterator[tuple[int, float]]:
    """Number and value of the best trials with this optimizer that a stored evidence names."""
    named = set()
    for winner in (evidence["best"], evidence["baseline"]):
        if winner is not None and winner["config"]["optimizer"]["name"] == optimizer:
            named.add(winner["number"])
            yield winner["number"], winner["value"]
    for best in evidence.get("baselines", []):
        if best["optimizer"] == optimizer and best["value"] is not None and best["number"] not in named:
            yield best["number"], best["value"]


def fit(
    space: SearchSpace, given: Mapping[str, Scalar], *, held: Mapping[str, Any] | None = None
) -> tuple[dict[str, JsonValue], list[str]] | None:
    """`given` as an assignment of another space, and the names of what had to be clipped; None: it does not fit.

    Args:
        held: all arguments of the optimizer that the config had, beside those given. Where the space searches a choice
            that was held fixed, as which member of a family, it takes that.
    """
    if _is_of_another_branch(space, given):
        return None
    values: dict[str, Scalar] = {}
    clipped: list[str] = []
    own, fixed = given.keys(), held or {}
    for branching in space.branching:
        if branching.name not in given and fixed.get(branching.name) in branching.choices:
            given = {**given, branching.name: fixed[branching.name]}
    for parameter in space.parameters:
        if not is_active(parameter, values):
            continue
        if parameter.name not in given:
            values[parameter.name] = parameter.default
            continue
        try:
            values[parameter.name] = _nearest(parameter, given[parameter.name])
        except ValueError:
            return None
        if not is_same(values[parameter.name], given[parameter.name]):
            clipped.append(parameter.name)
    if not own & values.keys():
        return None
    return dict(space.check(values)), clipped


def _is_of_another_branch(space: SearchSpace, given: Mapping[str, Scalar]) -> bool:
    """True if a choice was searched that this space has otherwise, fixed or as the optimizer's default."""
    searched = {parameter.name for parameter in space.parameters}
    arguments = ARGUMENTS[space.optimizer]
    for name, value in given.items():
        if name not in searched and name in arguments and arguments[name].kind == "choice":
            own = space.fixed.get(name, arguments[name].default)
            if own is not None and own != value:
                return True
    return False


def _nearest(parameter: Parameter, value: Scalar) -> Scalar:
    """Raises: ValueError: nothing is near."""
    if isinstance(parameter, Categorical):
        if not any(is_same(value, choice) for choice in parameter.choices):
            raise ValueError(f"{value!r} is no choice of {parameter.name}")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no number for {parameter.name}")
    return parameter.clipped(round(value)) if isinstance(parameter, Integer) else parameter.clipped(value)


def _has_same_objective(job: Job, plan: JobPlan) -> bool:
    return job.objectives[0] == plan.objectives[0]


def _is_possible(plan: JobPlan, side: Side, values: dict[str, JsonValue]) -> bool:
    try:
        plan.trial_config(side, values)
    except ValueError:
        return False
    return True


def _resolved(
    session: Session, plan: JobPlan, fingerprint: str | None, side: Side, pinned: Pinned, project: str
) -> Pinned:
    resolved: Pinned = []
    seen: list[object] = [entry for entry in pinned if isinstance(entry, dict)]
    room = min(MAX_WINNERS, MAX_PINNED - sum(entry != "winners" for entry in pinned))
    for entry in pinned:
        if entry != "winners":
            resolved.append(entry)
            continue
        assert fingerprint is not None, "it is known where winners are asked for"
        for winner in find_winners(session, plan, fingerprint, side, project=project):
            if room > 0 and winner.parameters not in seen:
                seen.append(winner.parameters)
                resolved.append(winner)
                room -= 1
    return resolved
