"""Files that the service sends, fetched to disk: gone on with after a broken connection, and checked."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from service.errors import ServiceError

TRIES = 5
"""Tries for one file, by judgement: each goes on where the one before broke off."""


class DamagedDownload(ServiceError):
    """A download does not have the checksum that was announced."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} does not have its checksum; it was not kept")


def fetch(http: httpx.Client, path: str, target: Path, *, sha256: str | None) -> httpx.Response:
    """Writes what is at `path` to a file; the answer, of which nothing is written unless it is a success.

    The file has another name until it is whole. A connection that breaks is made again, to go on where it broke.

    Args:
        sha256: of the content; None: it is not checked.

    Raises:
        httpx.TransportError: the service is out of reach.
        DamagedDownload
    """
    with _Coming(target) as coming:
        while True:
            try:
                with http.stream("GET", path, headers=coming.asked) as response:
                    if not response.is_success:
                        response.read()
                        return response
                    coming.begin(response)
                    for chunk in response.iter_raw():
                        coming.take(chunk)
            except httpx.TransportError:
                if not coming.may_try_again():
                    raise
            else:
                coming.keep(sha256)
                return response


async def fetch_later(http: httpx.AsyncClient, path: str, target: Path, *, sha256: str | None) -> httpx.Response:
    """Does what `fetch` does, with a client whose answers are awaited."""
    with _Coming(target) as coming:
        while True:
            try:
                async with http.stream("GET", path, headers=coming.asked) as response:
                    if not response.is_success:
                        await response.aread()
                        return response
                    coming.begin(response)
                    async for chunk in response.aiter_raw():
                        coming.take(chunk)
            except httpx.TransportError:
                if not coming.may_try_again():
                    raise
            else:
                coming.keep(sha256)
                return response


class _Coming:
    """A file as far as it has come; what is not kept is removed."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._part = target.with_name(f"{target.name}.part")
        self._tag: str | None = None
        self._checksum = hashlib.sha256()
        self._tries_left = TRIES

    def __enter__(self) -> Self:
        self._file = self._part.open("wb")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
        self._part.unlink(missing_ok=True)

    @property
    def asked(self) -> dict[str, str]:
        """The headers that ask for what is missing yet."""
        headers = {"Accept-Encoding": "identity"}
        if self._tag is not None:
            headers |= {"Range": f"bytes={self._file.tell()}-", "If-Range": self._tag}
        return headers

    def begin(self, response: httpx.Response) -> None:
        """Begins anew, unless the answer goes on where the one before broke off."""
        if response.status_code != httpx.codes.PARTIAL_CONTENT:
            self._file.seek(0)
            self._file.truncate()
            self._checksum = hashlib.sha256()
        self._tag = response.headers.get("ETag")

    def take(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self._checksum.update(chunk)

    def may_try_again(self) -> bool:
        """True a few times."""
        self._tries_left -= 1
        return self._tries_left > 0

    def keep(self, sha256: str | None) -> None:
        """Gives the file its name. Raises: DamagedDownload."""
        self._file.close()
        if sha256 is not None and self._checksum.hexdigest() != sha256:
            raise DamagedDownload(self._target.name)
        self._part.replace(self._target)
