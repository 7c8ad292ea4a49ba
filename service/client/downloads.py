"""Files that the service sends, fetched to disk: gone on with after a broken connection, and checked."""

from __future__ import annotations

import hashlib
from pathlib import Path

import httpx

from service.errors import ServiceError

TRIES = 5


class DamagedDownload(ServiceError):
    """What came is not what was to come."""

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
    part = target.with_name(f"{target.name}.part")
    tag, checksum = None, hashlib.sha256()
    with part.open("wb") as file:
        for remaining in reversed(range(TRIES)):
            headers = {"Accept-Encoding": "identity"}
            if tag is not None:
                headers |= {"Range": f"bytes={file.tell()}-", "If-Range": tag}
            try:
                with http.stream("GET", path, headers=headers) as response:
                    if not response.is_success:
                        response.read()
                        part.unlink()
                        return response
                    if response.status_code != httpx.codes.PARTIAL_CONTENT:
                        file.seek(0)
                        file.truncate()
                        checksum = hashlib.sha256()
                    tag = response.headers.get("ETag")
                    for chunk in response.iter_raw():
                        file.write(chunk)
                        checksum.update(chunk)
                break
            except httpx.TransportError:
                if not remaining:
                    part.unlink()
                    raise
    if sha256 is not None and checksum.hexdigest() != sha256:
        part.unlink()
        raise DamagedDownload(target.name)
    part.replace(target)
    return response
