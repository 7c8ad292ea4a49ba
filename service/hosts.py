"""Host names in one spelling each: of requests, of the pages that send them, and of the settings that allow them."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address

THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
"""Names that lead to the asking machine itself, whatever a name server says."""
ANY_HOST = "*"
URL = "SHAMPOO_TUNER_URL"
"""The variable that says where the service is to commands and clients which are not told."""
DEFAULT_PORT = 8730
"""The service's port, by judgement: away from those that web frameworks take by default (3000, 5000, 8000, 8080)."""
DEFAULT_URL = f"http://127.0.0.1:{DEFAULT_PORT}"
"""The address of a service that was started without options."""

_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*", re.IGNORECASE | re.ASCII)
_AUTHORITY = re.compile(r"(?P<host>\[[0-9a-f:.]{2,45}\]|[^\[\]:]+)(?::(?P<port>[0-9]{0,5}))?", re.IGNORECASE | re.ASCII)
_ORIGIN = re.compile(r"(?P<scheme>https?)://(?P<authority>.+)")
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Authority:
    """A host, as `host_in_one_spelling` has it, and the port if one was given."""

    host: str
    port: int | None


def host_and_port(host: str, port: int) -> str:
    """Both as a URL has them: an address of IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_of_peer(text: str) -> str | None:
    """The IP address of whoever connected, without a zone; None: it is none.

    A socket that is bound to `::` writes those of IPv4 as `::ffff:192.0.2.1`; they are given as they are.
    """
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return str((address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address)


def holder_of(address: str) -> str:
    """The part of a peer's IP address that tells one holder from others: for IPv6 the network of 64 bits, as whoever
    has one of its addresses can take them all."""
    return str(IPv6Network((address, 64), strict=False)) if ":" in address else address


def host_in_one_spelling(text: str) -> str | None:
    """A name in lower case without the dot that may end it, or an IP address in its shortest form, without brackets.

    None: it is neither.
    """
    bracketed = text.startswith("[") and text.endswith("]")
    with suppress(ValueError):
        address = ip_address(text[1:-1] if bracketed else text)
        return str(address) if isinstance(address, IPv6Address) or not bracketed else None
    name = text.removesuffix(".")
    return name.lower() if _NAME.fullmatch(name) else None


def pattern_in_one_spelling(text: str) -> str | None:
    """The one spelling of a host that is allowed, which `*.` may begin, or which is `*`."""
    if text == ANY_HOST:
        return ANY_HOST
    host = host_in_one_spelling(text.removeprefix("*."))
    return f"*.{host}" if host is not None and text.startswith("*.") else host


def read_authority(text: str) -> Authority | None:
    """The `Host` of a request; None: it is malformed."""
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        return None
    host, port = host_in_one_spelling(found["host"]), int(found["port"]) if found["port"] else None
    if host is None or (port is not None and port > 65535):
        return None
    return Authority(host, port)


def is_allowed(host: str, allowed: Collection[str]) -> bool:
    """True if `host` is one of `allowed` or below one that `*.` begins."""
    if host in allowed or ANY_HOST in allowed:
        return True
    return any(pattern.startswith("*.") and host.endswith(pattern[1:]) for pattern in allowed)


def is_origin_of(origin: str, asked: Authority) -> bool:
    """True if a page of `origin` (the `Origin` of a request) is one of the host and port that were `asked`.

    The scheme does not count: behind a proxy that speaks TLS a page has `https`, and the service is asked by `http`.
    So both defaults of a port are taken as it stands in the origin's scheme.
    """
    found = _ORIGIN.fullmatch(origin)
    if found is None:
        return False
    own, default = read_authority(found["authority"]), _DEFAULT_PORTS[found["scheme"]]
    return own is not None and own.host == asked.host and (own.port or default) == (asked.port or default)
