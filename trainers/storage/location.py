"""The address of a place for checkpoints: a path, or the URI of a store, which never shows what could be a secret.

The error of a store stands here too, apart from the store, which needs pyarrow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlsplit

SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs", "file")
"""Schemes of the URIs that `pyarrow.fs.FileSystem.from_uri` takes."""
WEIGHTS_FILE = "model.safetensors"
"""The name of a trained model's weights in a place of their own."""

_IS_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_BUCKET_SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss")
_SECRET = re.compile(r"key|secret|token|password|credential", re.IGNORECASE)
_PUBLIC_OPTIONS = frozenset({"endpoint_override", "region", "scheme"})


class InvalidPlace(ValueError):
    """An address that cannot hold checkpoints; the message shows no secrets."""


class StoreFailed(Exception):
    """A store did not do what was asked, tried again or not; it says nothing of what lies in it."""


@dataclass(frozen=True, slots=True, repr=False)
class StoreUri:
    """A directory in a store. `str()` is for people: without what could be a secret."""

    scheme: str
    authority: str
    """Bucket, host or container, with the user before it if there is one."""
    path: str
    """Below the authority, decoded, without slashes at its ends."""
    query: str
    """Options of the store, as in the URI."""

    def __truediv__(self, name: str) -> StoreUri:
        path = f"{self.path}/{name}" if self.path else name
        return StoreUri(self.scheme, self.authority, path, self.query)

    def __str__(self) -> str:
        return masked(self.text)

    def __repr__(self) -> str:
        return f"StoreUri({str(self)!r})"

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def text(self) -> str:
        """The URI, as `place_of` takes it."""
        return self._with_path(quote(self.path))

    @property
    def root(self) -> str:
        """The URI without the path: of the bucket, or of the whole file system."""
        return self._with_path("")

    def _with_path(self, path: str) -> str:
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{self.authority}/{path}{query}"


Place: TypeAlias = Path | StoreUri


def place_of(text: str) -> Place:
    """The place that a text names: a URI, or else a path.

    Raises:
        InvalidPlace: an empty text, or a URI with another scheme, without a bucket, or with credentials in it.
    """
    if not text:
        raise InvalidPlace("an empty text names no place; the current directory is '.'")
    if _IS_URI.match(text) is None:
        return Path(text)
    shown = masked(text)
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise InvalidPlace(f"{shown} is not a URI: {error}") from None
    if parts.scheme not in SCHEMES or not text[len(parts.scheme) :].startswith("://"):
        expected = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise InvalidPlace(f"{shown} is neither a path nor a URI that begins with one of {expected}")
    user, at, host = parts.netloc.rpartition("@")
    options = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    # What follows a colon can be a password that a slash cuts short.
    after_colon = host.partition(":")[2]
    if (
        ":" in user
        or (at and parts.scheme == "s3")
        or (after_colon and (parts.scheme in _BUCKET_SCHEMES or not after_colon.isdecimal()))
        or "@" in unquote(parts.query)
        or any(map(_SECRET.search, options))
    ):
        raise InvalidPlace(f"{shown} has credentials in it; they belong in the environment, where pyarrow finds them")
    if parts.scheme in _BUCKET_SCHEMES and not parts.netloc:
        raise InvalidPlace(f"{shown} names no bucket")
    if parts.scheme == "file" and parts.netloc:
        raise InvalidPlace(f"{shown} names a host; a path on this machine is file:///...")
    if parts.fragment or re.search(r"\s", text):
        raise InvalidPlace(f"{shown} has a fragment or white space in it; in a URI, they are written %23 and %20")
    return StoreUri(parts.scheme, parts.netloc, unquote(parts.path).strip("/"), parts.query)


def text_of(place: Place) -> str:
    """The text from which `place_of` makes the place; for other processes, not for people."""
    return place.text if isinstance(place, StoreUri) else str(place)


def masked(text: str) -> str:
    """A text in which what could be a secret in URIs is replaced by `***`: users, and options of unknown meaning."""
    text = re.sub(r"(?<=://)[^\s'\"]*(@|%40)", "***@", text)
    return re.sub(r"(?<=[?&])([^=&\s]+)=([^&\s]*)", _without_secret, text)


def _without_secret(option: re.Match[str]) -> str:
    return option[0] if option[1] in _PUBLIC_OPTIONS else f"{option[1]}=***"
