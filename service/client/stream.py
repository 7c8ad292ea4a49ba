"""Server-sent events, as they come over a connection."""

from __future__ import annotations

from collections.abc import Iterator


def sse_messages(chunks: Iterator[bytes]) -> Iterator[tuple[str, str]]:
    """(event, data) of a stream of server-sent events; comments and messages without data are passed over."""
    event, data = "message", list[str]()
    for line in _lines(chunks):
        if not line:
            if data:
                yield event, "\n".join(data)
            event, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            event = value
        elif field == "data":
            data.append(value)


def _lines(chunks: Iterator[bytes]) -> Iterator[str]:
    """Lines that end in a line feed. `str.splitlines` would split at U+2028 too, which JSON text may hold."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r").decode()
