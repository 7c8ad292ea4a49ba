"""The checkpoints of a trial: a list of them, and their files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated, Any, BinaryIO

from fastapi import APIRouter, Header, Path, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.api import problems
from service.api.dependencies import JobId, ReadSession, SettingsDependency, TrialNumber
from service.api.one_thread import OneThreadRoute
from service.api.schemas.trials import CheckpointList, CheckpointRead
from service.checkpoint_files import OpenFile, TrialCheckpoints
from service.errors import CheckpointsOutOfReach, NotFound
from service.settings import Settings
from service.store.repositories import TrialRepository
from service.store.session import Session
from trainers.storage import StoreFailed

MAX_DOWNLOADS = 20
"""Downloads at once, of an API process."""
CHUNK_BYTES = 2**20
"""1 MiB of a file is in memory at a time for each download, by judgement."""
BYTES = "application/octet-stream"

router = APIRouter(prefix="/v1/jobs/{job_id}/trials/{number}/checkpoints", tags=["trials"], route_class=OneThreadRoute)

CheckpointName = Annotated[str, Path(max_length=100, description="The checkpoint's name.", examples=["step-00000040"])]
FileName = Annotated[
    str, Path(max_length=100, description="The name of one of its files.", examples=["rank-00000.safetensors"])
]
Range = Annotated[str | None, Header(alias="Range", description="`bytes=1048576-` goes on with a download.")]
IfRange = Annotated[
    str | None, Header(alias="If-Range", description="The `ETag` of what was downloaded: else all is sent.")
]
_BYTES_SCHEMA = {"schema": {"type": "string", "format": "binary"}}
DOWNLOAD_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file.", "content": {BYTES: {**_BYTES_SCHEMA, "example": "..."}}},
    206: {"description": "The range that was asked for.", "content": {BYTES: _BYTES_SCHEMA}},
    **problems.documented(404, 416, 422, 503),
}
_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")


@router.get("", summary="List a trial's checkpoints", responses=problems.documented(404, 422, 503))
def list_checkpoints(
    session: ReadSession, settings: SettingsDependency, job_id: JobId, number: TrialNumber
) -> CheckpointList:
    """The existing checkpoints, the newest first. An unfinished trial has its last few; one that its job's budget cut
    off keeps them for a while (by default a week); any other trial has none."""
    checkpoints = _checkpoints(session, settings, job_id, number)
    try:
        found = checkpoints.newest_first()
    except (OSError, StoreFailed) as error:
        raise unreadable(error) from error
    return CheckpointList(items=[CheckpointRead.model_validate(checkpoint) for checkpoint in found])


@router.get(
    "/{checkpoint}/{file}",
    summary="Download a file of a checkpoint",
    response_class=Response,
    responses=DOWNLOAD_RESPONSES,
)
def download_checkpoint(
    request: Request,
    session: ReadSession,
    settings: SettingsDependency,
    job_id: JobId,
    number: TrialNumber,
    checkpoint: CheckpointName,
    file: FileName,
    wanted_range: Range = None,
    if_range: IfRange = None,
) -> Response:
    """A file of a checkpoint as it is, in one piece or from where a download broke off.

    A checkpoint is removed once there are newer ones, or its trial has ended; a download from a path that has begun is
    completed.
    """
    try:
        opened = _checkpoints(session, settings, job_id, number).open(checkpoint, file)
    except FileNotFoundError:
        raise NotFound("file of a checkpoint", f"{checkpoint}/{file}") from None
    except (OSError, StoreFailed) as error:
        raise unreadable(error) from error
    return download(
        opened,
        f"{checkpoint}-{opened.version}",
        f"{job_id}-{number}-{checkpoint}-{file}",
        path=request.url.path,
        wanted_range=wanted_range,
        if_range=if_range,
    )


def download(
    opened: OpenFile, version: str, name: str, *, path: str, wanted_range: str | None, if_range: str | None
) -> Response:
    """The answer with a file, or with what is asked for of it.

    Args:
        version: tells it from another file at this address.
        name: the name that whoever saves it is offered.
        path: the request's path.
    """
    tag = f'"{version}-{opened.num_bytes:x}"'
    headers = {
        "Accept-Ranges": "bytes",
        "ETag": tag,
        "Content-Encoding": "identity",  # a compressor would change what a range is of
        "Content-Disposition": f'attachment; filename="{name}"',
    }
    wanted = _wanted(wanted_range if if_range in (None, tag) else None, opened.num_bytes)
    if wanted is None:
        opened.content.close()
        return problems.problem_response(
            HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
            None,
            "The range is beyond the file",
            f"the file has {opened.num_bytes} bytes",
            instance=path,
            headers={"Content-Range": f"bytes */{opened.num_bytes}"},
        )
    start, end = wanted
    is_part = (start, end) != (0, opened.num_bytes)
    if is_part:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{opened.num_bytes}"
    headers["Content-Length"] = str(end - start)
    return Download(opened, start, end, HTTPStatus.PARTIAL_CONTENT if is_part else HTTPStatus.OK, headers)


class RunningDownloads:
    """The files that are being sent, counted. Lives in one event loop."""

    def __init__(self) -> None:
        self.num_open = 0


class Download(StreamingResponse):
    """A range of a file; counted for as long as it lasts."""

    def __init__(self, opened: OpenFile, start: int, end: int, status: int, headers: dict[str, str]) -> None:
        self._opened = opened
        super().__init__(_chunks(opened.content, start, end), status, headers, media_type=BYTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        downloads: RunningDownloads = scope["app"].state.downloads
        try:
            if downloads.num_open >= MAX_DOWNLOADS:
                busy = problems.busy(f"{MAX_DOWNLOADS} files are sent at once", instance=scope["path"])
                await busy(scope, receive, send)
                return
            downloads.num_open += 1
            try:
                await super().__call__(scope, receive, send)
            finally:
                downloads.num_open -= 1
        finally:
            self._opened.content.close()


def _chunks(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    file.seek(start)
    left = end - start
    while left > 0 and (chunk := file.read(min(CHUNK_BYTES, left))):
        left -= len(chunk)
        yield chunk


def _wanted(text: str | None, num_bytes: int) -> tuple[int, int] | None:
    """(begin, end) of what is asked for; None: there is none of it. What is no single range asks for all (RFC 9110)."""
    match = None if text is None else _RANGE.fullmatch(text.strip())
    if match is None or match[1] == match[2] == "":
        return 0, num_bytes
    if match[1] == "":
        start, end = max(0, num_bytes - int(match[2])), num_bytes
    else:
        start, end = int(match[1]), num_bytes if match[2] == "" else int(match[2]) + 1
        if match[2] != "" and end <= start:
            return 0, num_bytes
    return (start, min(end, num_bytes)) if start < num_bytes and end > start else None


def _checkpoints(session: Session, settings: Settings, job_id: str, number: int) -> TrialCheckpoints:
    trial = TrialRepository(session).get(job_id, number)
    return TrialCheckpoints(settings.checkpoint_place / trial.job_id / str(trial.number))


def unreadable(error: OSError | StoreFailed) -> CheckpointsOutOfReach:
    """The error to answer with where files cannot be read."""
    # The words of the system alone: what it names is a path of the service.
    return CheckpointsOutOfReach(str(error.strerror if isinstance(error, OSError) else error))
