"""Requests about code that comes with jobs."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

from service.api.schemas.code import CodeRead
from service.client.calls import Call, reading
from service.client.errors import ApiError
from service.client.requests import Requests
from service.errors import InvalidInput

PATH = "/v1/code"


class CodeRequests(Requests):
    """Sends code, once."""

    def send_code(self, directory: Path) -> CodeRead:
        """Sends a directory of code, unless the service has it already; a job names its `sha256`.

        A `.shampooignore`, or else a `.gitignore`, in the directory says what is left out; caches and Git's own files
        are left out always.

        Raises:
            InvalidInput: there is something in the directory that cannot be sent, or too much.
            ApiError: the service refused it.
        """
        # Of this request alone.
        from service.code.archive import MEDIA_TYPE, UnusableCode, pack
        from service.code.collecting import collect

        try:
            archive = pack(collect(directory))
        except UnusableCode as error:
            raise InvalidInput(str(directory), str(error)) from error
        try:
            return self.call(Call(reading(CodeRead), "GET", f"{PATH}/{archive.sha256}"))
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
        headers = {"Content-Type": MEDIA_TYPE}
        # Named by its content: sent twice, it is there once.
        return self.call(Call(reading(CodeRead), "POST", PATH, body=archive.content, headers=headers, repeatable=True))
