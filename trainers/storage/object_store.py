"""A directory in a store of `pyarrow.fs`, with patience for one that fails for a moment.

There is no rename in an object store, and no flush to disk in any: a file is there when its writer was closed.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import PurePosixPath
from typing import BinaryIO, TypeVar

from trainers.installation.extras import needs
from trainers.retry import retry
from trainers.storage import StoreFailed
from trainers.storage.location import StoreUri, masked

try:
    import pyarrow as pa
    from pyarrow import fs
except ModuleNotFoundError as error:
    raise StoreFailed(f"a store of checkpoints {needs('pyarrow', extra='stores')}") from error

T = TypeVar("T")

STORE_OUTAGE_SECONDS = 60.0
"""Seconds for which what failed is tried again; well below the time that ranks wait for each other."""
FIRST_PAUSE_SECONDS = 0.2
"""Longer than most requests take."""

_CHUNK_BYTES = 1 << 24
"""Downloaded at once: 16 MiB, to bound memory."""
_OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})
"""Stores that have no directories to make."""
_PERMANENT = (
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "NO_SUCH_BUCKET",
    "SIGNATURE_DOES_NOT_MATCH",
    "UNRECOGNIZED_CLIENT",
)
"""Errors of S3 that no patience mends. pyarrow names them in the text of an OSError alone, which has no `errno`."""
_DEFAULTS = (
    # A small file then is one request, and not the three of an upload in parts.
    ("s3", "allow_delayed_open", "true"),
    # Its own patience of a quarter of an hour is beyond that of ranks that wait for each other.
    *((scheme, "retry_limit_seconds", "60") for scheme in ("gs", "gcs")),
)
"""Options of a URI that are others here than pyarrow's own, unless it has them."""
_REQUEST_ID = re.compile(r" \(Request ID: [^)]*\)")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as a store lists it."""

    num_bytes: int
    written_at: datetime


class ObjectStore:
    """A directory in a store. Methods take paths below it, and may be called from any thread."""

    def __init__(self, uri: StoreUri, *, outage_seconds: float | None = None) -> None:
        """Nothing is asked of the store yet.

        Args:
            outage_seconds: for how long what failed is tried again; None: `STORE_OUTAGE_SECONDS`.

        Raises:
            StoreFailed: the URI has options that pyarrow does not know, or its library for the scheme is missing.
        """
        self.uri = uri
        self._outage_seconds = outage_seconds
        try:
            self._fs, root = _connect(uri.root)
        except (OSError, pa.ArrowException, NotImplementedError) as error:
            raise _failed(uri, "cannot be used", error) from None
        self._root = "/".join(part for part in (root.rstrip("/"), uri.path) if part) or "/"
        if root.startswith("/") and not self._root.startswith("/"):
            self._root = f"/{self._root}"

    def files(self) -> dict[str, int]:
        """Bytes of every file, by path."""
        return {path: file.num_bytes for path, file in self.listed().items()}

    def listed(self) -> dict[str, ListedFile]:
        """Every file, by path."""
        selector = fs.FileSelector(self._root, recursive=True, allow_not_found=True)
        found = self._patiently("cannot be listed", lambda: self._fs.get_file_info(selector))
        return {
            self._below(info.path): ListedFile(
                info.size or 0, datetime.fromtimestamp((info.mtime_ns or 0) / 1e9, tz=UTC)
            )
            for info in found
            if info.type == fs.FileType.File
        }

    def open(self, path: str) -> pa.NativeFile:
        """A file, for reading any part of it. Raises: FileNotFoundError, StoreFailed."""
        return self._patiently(f"cannot give {path}", lambda: self._fs.open_input_file(self._full(path)))

    def directories(self) -> list[str]:
        """Names of the directories right below."""
        selector = fs.FileSelector(self._root, allow_not_found=True)
        found = self._patiently("cannot be listed", lambda: self._fs.get_file_info(selector))
        return sorted(self._below(info.path) for info in found if info.type == fs.FileType.Directory)

    def read(self, path: str) -> bytes:
        """A file's content. Raises: FileNotFoundError, StoreFailed."""

        def read() -> bytes:
            with self._fs.open_input_stream(self._full(path)) as stream:
                content: bytes = stream.read()
                return content

        return self._patiently(f"cannot give {path}", read)

    def download(self, path: str, file: BinaryIO) -> None:
        """Writes a file's content to the beginning of an empty local one. Raises: FileNotFoundError, StoreFailed."""

        def download() -> None:
            file.seek(0)
            file.truncate()
            with self._fs.open_input_stream(self._full(path)) as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    file.write(chunk)

        self._patiently(f"cannot give {path}", download)

    def write(self, path: str, chunks: Callable[[], Iterable[bytes | memoryview]]) -> str:
        """Writes or replaces a file; gives its SHA-256. `chunks` is called again when the store has failed.

        A process that is killed meanwhile leaves no file in an object store; elsewhere it can leave a part of one.

        Raises:
            StoreFailed: the store refused.
        """
        full = self._full(path)

        def write() -> str:
            checksum = hashlib.sha256()
            if self._fs.type_name not in _OBJECT_STORES:
                self._fs.create_dir(str(PurePosixPath(full).parent), recursive=True)
            with self._fs.open_output_stream(full) as stream:
                for chunk in chunks():
                    checksum.update(chunk)
                    stream.write(chunk)
            return checksum.hexdigest()

        return self._patiently(f"cannot take {path}", write)

    def delete(self, directory: str = "") -> None:
        """Deletes a directory with all that is in it, if it is there; `""`: this one."""

        def delete() -> None:
            try:
                self._fs.delete_dir(self._full(directory))
            except FileNotFoundError:
                return

        self._patiently(f"cannot delete {directory or 'it'}", delete)

    def _full(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}" if path else self._root

    def _below(self, full: str) -> str:
        return full[len(self._root.rstrip("/")) + 1 :].rstrip("/")

    def _patiently(self, what: str, action: Callable[[], T]) -> T:
        """Does it, again and again for a while if the store fails. Raises: FileNotFoundError, StoreFailed."""
        try:
            return retry(
                action,
                is_temporary=_is_temporary,
                give_up_seconds=STORE_OUTAGE_SECONDS if self._outage_seconds is None else self._outage_seconds,
                first_pause_seconds=FIRST_PAUSE_SECONDS,
                tell=lambda error, pause: logger.warning(
                    "%s; tried again in %.1f s", _failed(self.uri, what, error), pause
                ),
            )
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise _failed(self.uri, what, error) from None


def _is_temporary(error: Exception) -> bool:
    is_of_the_store = isinstance(error, OSError) and not isinstance(error, FileNotFoundError)
    return is_of_the_store and not any(code in str(error) for code in _PERMANENT)


def _failed(uri: StoreUri, what: str, error: Exception) -> StoreFailed:
    # A request's number would make one and the same error another each time.
    return StoreFailed(f"{uri} {what}: {masked(_REQUEST_ID.sub('', str(error)))}")


@lru_cache(maxsize=8)
def _connect(root: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URI without a path, and the path in it that it names; connections are kept."""
    for scheme, option, value in _DEFAULTS:
        if root.startswith(f"{scheme}://") and f"{option}=" not in root:
            root += f"{'&' if '?' in root else '?'}{option}={value}"
    connected: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(root)
    return connected
