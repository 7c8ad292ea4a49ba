"""Code that comes with jobs: sent once, then named by its hash. Nothing here imports any of it."""

from __future__ import annotations

import tempfile
from typing import IO, Annotated

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, Path, Request, Response

from service.access.caller import Scope
from service.access.permitted import SETTING
from service.api import problems
from service.api.dependencies import (
    CallerDependency,
    DeedDependency,
    Now,
    ReadSession,
    SettingsDependency,
    WriteSession,
)
from service.api.paging import DEFAULT_PAGE_SIZE, PageSize, PageToken, cut, decode_token, encode_token
from service.api.schemas.code import CodeItem, CodeRead
from service.api.schemas.common import Page
from service.code.archive import MEDIA_TYPE, CodeArchive, UnusableCode, pack, read
from service.errors import CodeForbidden, InvalidInput, NotFound
from service.specification.code import SHA256_PATTERN
from service.store.repositories import CodeRepository
from service.use_cases.keeping.code import keep_code, remove_code

PATH = "/v1/code"
UPLOADS_AT_ONCE = 2
"""Archives that are unpacked and checked at the same time: each is in memory for that."""
IN_MEMORY_BYTES = 1_000_000
"""Bytes of an archive that are kept in memory as it comes; the rest goes to a file."""

router = APIRouter(prefix=PATH, tags=["code"])

Sha256 = Annotated[
    str,
    Path(
        description="The code's hash.",
        pattern=SHA256_PATTERN,
        examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
    ),
]


class Uploads:
    """Bounds the archives that are looked through at once. Lives in one event loop."""

    def __init__(self) -> None:
        self.threads = CapacityLimiter(UPLOADS_AT_ONCE)


def _permitted(settings: SettingsDependency, caller: CallerDependency) -> None:
    """Raises: InvalidInput, CodeForbidden: as for a job that names code."""
    if not settings.allow_code:
        why = f"code is switched off here: `--allow-code` or {SETTING}=true allows it to all who may submit jobs"
        raise InvalidInput("body", why)
    if not caller.may(Scope.CODE):
        raise CodeForbidden("body", f"code needs the scope {Scope.CODE.value!r}")


async def _sent(request: Request, _: Annotated[None, Depends(_permitted)]) -> CodeArchive:
    """The archive of a request, checked and packed anew; its bytes are counted on the way."""
    uploads: Uploads = request.app.state.uploads
    with tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES) as file:
        async for chunk in request.stream():
            await to_thread.run_sync(file.write, chunk)
        file.seek(0)
        return await to_thread.run_sync(_checked, file, limiter=uploads.threads)


def _checked(file: IO[bytes]) -> CodeArchive:
    try:
        return pack(read(file))
    except UnusableCode as error:
        raise InvalidInput("body", str(error)) from error


@router.post(
    "",
    status_code=201,
    summary="Send code",
    response_model=CodeRead,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}, "example": "(the bytes of the archive)"}
            },
            "description": "A gzipped tar archive of the directory, at most 10 MB.",
        }
    },
    responses={
        201: {"description": "The code is stored."},
        200: {"model": CodeRead, "description": "The project had the same code already."},
        **problems.documented(403, 408, 409, 413, 422, 503),
    },
)
def send_code(
    sent: Annotated[CodeArchive, Depends(_sent)],
    session: WriteSession,
    caller: CallerDependency,
    deed: DeedDependency,
    now: Now,
    response: Response,
) -> CodeRead:
    """Stores a directory of code, whose modules a job can then name: `"code": {"sha256": ...}` in the job, and a class
    in it as `module:Class`. It takes regular files only, at most 2,000 with 50 MB unpacked, with plain names at most 16
    deep; none may have the name of a module of Python's or of the service's. The answer's hash is over names, modes and
    contents, so the same code is stored once in a project, however it was packed. It counts towards the project's
    stored bytes, and is removed a day after the last job that names it. The service never imports it itself: processes
    of jobs do."""
    code, is_new = keep_code(session, sent, project=caller.project, owner=caller.name, now=now)
    deed.target = code.sha256 if is_new else None
    if not is_new:
        response.status_code = 200
    return CodeRead.model_validate(code)


@router.get("", summary="List code", responses=problems.documented(422, 503))
def list_code(
    session: ReadSession,
    caller: CallerDependency,
    page_size: PageSize = DEFAULT_PAGE_SIZE,
    page_token: PageToken = None,
) -> Page[CodeItem]:
    """The code that the caller's project has, by hash, with the number of jobs that name it."""
    after = None if page_token is None else decode_token("code", page_token)
    rows = CodeRepository(session).page(caller.project, after_sha256=after, limit=page_size + 1)
    found, token = cut(rows, page_size, lambda row: encode_token("code", row[0].sha256))
    items = [CodeItem(**dict(CodeRead.model_validate(code)), num_jobs=num_jobs) for code, num_jobs in found]
    return Page[CodeItem](items=items, next_page_token=token)


@router.get("/{sha256}", summary="Read what code there is", responses=problems.documented(404, 422, 503))
def read_code(session: ReadSession, caller: CallerDependency, sha256: Sha256) -> CodeRead:
    """Says whether the caller's project has this code, which then need not be sent. Its files are not shown."""
    found = CodeRepository(session).find(caller.project, sha256)
    if found is None:
        raise NotFound("code", sha256)
    return CodeRead.model_validate(found)


@router.delete(
    "/{sha256}",
    status_code=204,
    summary="Remove code",
    responses={204: {"description": "It is gone."}, **problems.documented(403, 404, 409, 422, 503)},
)
def delete_code(session: WriteSession, caller: CallerDependency, deed: DeedDependency, sha256: Sha256) -> None:
    """Removes code of the caller's project that no job names, without waiting until the service removes it."""
    remove_code(session, sha256, project=caller.project)
    deed.target = sha256
