"""The requests about code that comes with jobs, each declared once for both clients."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from service.api.schemas.code import CodeItem, CodeRead
from service.api.schemas.common import Page
from service.client.calls import Call, Pages, nothing, page_of, reading
from service.errors import InvalidInput

if TYPE_CHECKING:
    from service.code.archive import CodeArchive

PATH = "/v1/code"


def packed(directory: Path) -> CodeArchive:
    """A directory of code as it is sent.

    Raises:
        InvalidInput: there is something in it that cannot be sent, or too much.
    """
    # Of these requests alone.
    from service.code.archive import UnusableCode, pack
    from service.code.collecting import collect

    try:
        return pack(collect(directory))
    except UnusableCode as error:
        raise InvalidInput(str(directory), str(error)) from error


def code() -> Pages[CodeItem]:
    """The code that the project has, by hash, with the number of jobs that name it."""
    return Pages(page_of(Page[CodeItem]), PATH)


def remove_code(sha256: str) -> Call[None]:
    """Removes code that no job names. Raises: ApiError (404; 409: a job names it)."""
    return Call(nothing, "DELETE", f"{PATH}/{sha256}")


def known_code(sha256: str) -> Call[CodeRead]:
    """Raises: ApiError (404: the service has it not)."""
    return Call(reading(CodeRead), "GET", f"{PATH}/{sha256}")


def store_code(archive: CodeArchive) -> Call[CodeRead]:
    """Sends code. Sent twice, it is kept once."""
    from service.code.archive import MEDIA_TYPE

    headers = {"Content-Type": MEDIA_TYPE}
    return Call(reading(CodeRead), "POST", PATH, raw=archive.content, headers=headers, repeatable=True)
