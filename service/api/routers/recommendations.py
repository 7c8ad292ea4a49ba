"""Recommendations: configs with their evidence."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Response

from service.api import problems
from service.api.conditional import UNCHANGEABLE, TaggedDependency
from service.api.dependencies import CallerDependency, JobId, ReadSession
from service.api.one_thread import OneThreadRoute
from service.api.pooling import PreparedQuestionDependency
from service.api.schemas.recommendations import KnownValuesRead, RecommendationList, RecommendationRead
from service.api.schemas.untuned import UntunedAnswerRead
from service.api.strict_json import refuse_repeated_names
from service.errors import NoRecommendation
from service.evidence.formats.written import Format, Written, written
from service.store.repositories import JobRepository, RecommendationQuery, RecommendationRepository
from service.use_cases.found_recommendations import MAX_VERSIONS_ASKED, find_answers, values_elsewhere, version_asked
from service.use_cases.untuned.transferring import configs_for
from trainers.config import MAX_COUNT

router = APIRouter(prefix="/v1", tags=["recommendations"], route_class=OneThreadRoute)

Name = Query(min_length=1, max_length=200)
Digest = Query(min_length=1, max_length=64)
Count = Query(ge=1, le=MAX_COUNT)
RecommendationId = Annotated[
    str, Path(description="The recommendation's id.", examples=["rec_01KAJ5QW1Z9Y8X7V6T5S4R3Q2P"])
]


@router.get(
    "/recommendations",
    summary="Ask for a model's recommended configs",
    response_model=RecommendationList,
    responses={**UNCHANGEABLE, **problems.documented(404, 422, 503)},
)
def list_recommendations(
    session: ReadSession,
    caller: CallerDependency,
    tagged: TaggedDependency,
    model: Annotated[str | None, Name, Query(description="Your own name of it.", examples=["my-gpt"])] = None,
    workload: Annotated[
        str | None, Name, Query(description="The name of the workload.", examples=["digits-mlp"])
    ] = None,
    fingerprint: Annotated[str | None, Digest, Query(description="The fingerprint of the model.")] = None,
    data_digest: Annotated[str | None, Digest, Query(description="The digest of the data.")] = None,
    batch_size: Annotated[int | None, Count, Query(description="Examples in a step, of all ranks.")] = None,
    num_steps: Annotated[int | None, Count, Query(description="The number of steps of a full trial.")] = None,
    precision: Annotated[
        str | None, Digest, Query(description="The precision of the training.", examples=["float32"])
    ] = None,
    objective: Annotated[str | None, Name, Query(description="The metric that decided.")] = None,
    device: Annotated[
        Literal["cpu", "cuda"] | None, Query(description="The kind of device that trials trained on.")
    ] = None,
    world_size: Annotated[int | None, Count, Query(description="Ranks of a trial.")] = None,
    version: Annotated[
        list[str],
        Query(
            max_length=MAX_VERSIONS_ASKED,
            description="The version of a package that was in use, or its first parts: `torch=2.13`. Repeat it for "
            "several, all of which it must have. `environment.versions` of an answer has the names.",
            examples=[["torch=2.13"]],
        ),
    ] = [],  # noqa: B006 - FastAPI copies it
    match: Annotated[
        Literal["all", "nearest"],
        Query(
            description="`nearest`: `data_digest`, `batch_size`, `num_steps` and `precision` need not agree, and those "
            "stand first that agree in more of them."
        ),
    ] = "all",
    include: Annotated[
        Literal["superseded"] | None, Query(description="The history, too: answers in whose place others stand.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=100, description="Answers, at most.")] = 20,
) -> Response:
    """The recommendations of finished jobs that hold for all that is asked: confirmed ones first and refuted ones last,
    then those that agree with more of it, then the newest.

    Of the answers for one model, data, batch size, steps, precision and objective that are as well confirmed, the one
    with the best value stands, and of equal ones the newest, as it does where other versions measured or the objective
    is a time or bytes; a newer one also takes the place of all that are less well confirmed. Asked for by `model`,
    `device`, `world_size` or `version`, it is the best of those that have it.

    A name that nothing has is answered with 404 and the names there are. The list is empty if the name is known and no
    answer holds for the rest: `elsewhere` says which values of `device` and the other filters have answers; where
    `model` and `workload` have none in common, which workloads the model has some for, and which models the workload.
    """
    query = RecommendationQuery(
        project=caller.sees,
        model=model,
        workload=workload,
        fingerprint=fingerprint,
        data_digest=data_digest,
        batch_size=batch_size,
        num_steps=num_steps,
        precision=precision,
        objective=objective,
        device=device,
        world_size=world_size,
        versions=[version_asked(given) for given in version],
        wants_nearest=match == "nearest",
        includes_superseded=include == "superseded",
    )
    found = find_answers(session, query, limit=limit)
    answer = RecommendationList(
        items=[RecommendationRead.of(answer.row, is_superseded=answer.is_superseded) for answer in found],
        elsewhere=[]
        if found
        else [KnownValuesRead.model_validate(known) for known in values_elsewhere(session, query)],
    )
    return tagged.answer(answer)


@router.post(
    "/recommendations",
    summary="Ask for configs of a model that was never tuned",
    dependencies=[Depends(refuse_repeated_names)],
    response_model=UntunedAnswerRead,
    responses=problems.documented(400, 413, 422, 503),
)
def recommend_untuned(
    asked: PreparedQuestionDependency, session: ReadSession, caller: CallerDependency
) -> UntunedAnswerRead:
    """Configs to try first on a model that is known by its fingerprint alone: those of the nearest tuned models, moved
    to it by scaling rules, what they and those of the shipped table say together, and published ones. Nothing is
    stored, and no value is promised.

    Each says what it was tuned for, how far that is from the model, what was changed by which rule, and in which range
    the best learning rate and weight decay lie. With no tuned model in the store, the table that comes with the service
    and published points answer, and `basis` is `built_in`. With `proxy_job` only the answer of that job is moved, which
    tuned a smaller or shorter version of the model in its place. `formats` has each config written in other formats,
    too, as those of a recommendation are.
    """
    found = configs_for(session, asked.question.wanted, asked.pooled, project=caller.sees)
    return UntunedAnswerRead.of(found, asked.question)


@router.get(
    "/recommendations/{recommendation_id}",
    summary="Read a recommendation",
    response_model=RecommendationRead,
    responses={**UNCHANGEABLE, **problems.documented(404, 422, 503)},
)
def read_one_recommendation(
    session: ReadSession, caller: CallerDependency, tagged: TaggedDependency, recommendation_id: RecommendationId
) -> Response:
    """One recommendation, even if another one has replaced it."""
    found = RecommendationRepository(session).get(recommendation_id, project=caller.sees)
    return tagged.answer(RecommendationRead.of(found.row, is_superseded=found.is_superseded))


@router.get(
    "/recommendations/{recommendation_id}/formats/{format}",
    summary="Write a recommendation in another format",
    response_model=Written,
    responses=problems.documented(404, 422, 503),
)
def write_recommendation(
    session: ReadSession,
    caller: CallerDependency,
    recommendation_id: RecommendationId,
    form: Annotated[Format, Path(alias="format", description="The format.")],
) -> Written:
    """The recommended config as Python, JSON or YAML, as the command that trains it again, or in the words of another
    optimizer package, with a list of the parts that cannot be said there."""
    found = RecommendationRepository(session).get(recommendation_id, project=caller.sees)
    return written(found.row.recommended, form)


@router.get(
    "/jobs/{job_id}/recommendation",
    summary="Read a job's recommendation",
    response_model=RecommendationRead,
    responses={**UNCHANGEABLE, **problems.documented(404, 422, 503)},
)
def read_recommendation(session: ReadSession, tagged: TaggedDependency, job_id: JobId) -> Response:
    """The recommendation of a job; 404 until it has ended with at least one completed search trial."""
    job = JobRepository(session).get(job_id)
    recommendations = RecommendationRepository(session)
    recommendation = recommendations.of_job(job.id)
    if recommendation is None:
        raise NoRecommendation(job.id, job.state, failure=job.failure)
    is_superseded = recommendations.is_superseded(recommendation)
    return tagged.answer(RecommendationRead.of(recommendation, is_superseded=is_superseded))
