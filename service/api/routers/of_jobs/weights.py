"""The trained weights of a job's winners, as files to download."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from service.api.dependencies import JobId, ReadSession, SettingsDependency
from service.api.one_thread import OneThreadRoute
from service.api.routers.of_trials.checkpoints import DOWNLOAD_RESPONSES, IfRange, Range, download, unreadable
from service.checkpoint_files import open_weights
from service.domain import WeightsOf
from service.errors import NotFound
from service.store.models import Job
from service.store.repositories import JobRepository
from service.use_cases.keeping.weights import winners_of
from trainers.storage import StoreFailed

router = APIRouter(prefix="/v1/jobs/{job_id}/weights", tags=["jobs"], route_class=OneThreadRoute)


@router.get(
    "/{side}",
    summary="Download trained weights",
    response_class=Response,
    responses=DOWNLOAD_RESPONSES,
)
def download_weights(
    request: Request,
    session: ReadSession,
    settings: SettingsDependency,
    job_id: JobId,
    side: Annotated[WeightsOf, Path(description="The config that was trained.")],
    wanted_range: Range = None,
    if_range: IfRange = None,
) -> Response:
    """The weights of the recommended config, or of the baseline's best, as safetensors. They are those that were
    evaluated in its trial with the best value of the confirmation, whole, under their names in the workload's model.

    They are kept from the end of the job until it is deleted, unless it says `keep_weights: false`. 404 says why there
    are none.
    """
    job = JobRepository(session).get(job_id)
    number = winners_of(session, job).get(side) if job.state.is_final else None
    if number is None:
        raise _missing(side, _why_none(job), job)
    try:
        opened = open_weights(settings.checkpoint_place, job.id, number)
    except FileNotFoundError:
        why = f"none of trial {number} were written" if job.specification.keep_weights else "keep_weights is false"
        raise _missing(side, why, job) from None
    except (OSError, StoreFailed) as error:
        raise unreadable(error) from error
    return download(
        opened,
        f"{number}-{opened.version}",
        f"{job.id}-{number}.safetensors",
        path=request.url.path,
        wanted_range=wanted_range,
        if_range=if_range,
    )


def _why_none(job: Job) -> str:
    if not job.state.is_final:
        return "the job has not ended"
    return "keep_weights is false" if not job.specification.keep_weights else "no trial confirmed that config"


def _missing(side: WeightsOf, why: str, job: Job) -> NotFound:
    return NotFound(f"weights of the {side} config: {why}, of job", job.id)
