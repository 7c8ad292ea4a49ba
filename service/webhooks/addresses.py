"""The addresses that webhooks may lead to: never a machine that only the service's own network reaches.

A name is resolved once, all that it resolves to is looked at, and the request goes to one of these addresses, so that
a second answer of the name's server (DNS rebinding) leads nowhere else.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from service.errors import ServiceError

MAX_URL_LENGTH = 2000
"""Characters, by judgement: URLs that are longer do not pass everywhere."""
_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
_GLOBAL_UNICAST = IPv6Network("2000::/3")
"""All that is given out of IPv6; Python calls site-local addresses (fec0::/10) and those of SIIT global, too."""
_ISATAP = (0x00005EFE, 0x02005EFE)
"""The 32 bits before the IPv4 address, in the second half of the IPv6 address that leads to it."""
_DEFAULT_PORTS = {"http": 80, "https": 443}


class ForbiddenAddress(ServiceError):
    """The address is none that the service sends to."""


@dataclass(frozen=True, slots=True)
class WebhookUrl:
    """The parts of a webhook's URL."""

    scheme: str
    host: str
    port: int
    path: str
    """The path with the query."""

    @property
    def authority(self) -> str:
        """The host and port as the header `Host` has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def read_url(url: str) -> WebhookUrl:
    """The parts of a URL.

    Raises:
        ForbiddenAddress: it is none that can be sent to.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ForbiddenAddress(f"is not a URL: {error}") from None
    if len(url) > MAX_URL_LENGTH or not url.isascii() or not url.isprintable() or " " in url:
        raise ForbiddenAddress(f"must be ASCII without spaces, of at most {MAX_URL_LENGTH} characters")
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ForbiddenAddress("must begin with https:// or http:// and name a host")
    if "@" in parts.netloc:
        raise ForbiddenAddress("must not hold a user or a password: what is sent is signed")
    if parts.fragment or port == 0:
        raise ForbiddenAddress("must have neither a fragment nor port 0")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebhookUrl(parts.scheme, parts.hostname, port or _DEFAULT_PORTS[parts.scheme], path)


def without_path(url: str) -> str:
    """The URL for those who may not know it all: what follows the host is the password of many services' addresses."""
    target = read_url(url)
    return f"{target.scheme}://{target.authority}/..."


def check_url(url: str, *, allows_private: bool) -> None:
    """Refuses a URL that can never be sent to; names are looked up when something is sent.

    Raises:
        ForbiddenAddress: it is no URL of a webhook, or its host is not public; the message says which.
    """
    host = read_url(url).host
    name = host.removesuffix(".")
    is_local = name == "localhost" or name.endswith(".localhost")
    address = _address_in(name)
    if not allows_private and (is_local or (address is not None and not is_public(address))):
        raise ForbiddenAddress(f"{host} is not public; webhook_private_addresses in the service's settings allows it")


def _address_in(host: str) -> str | None:
    """The IP address that a host is, in any spelling for which nobody's name server is asked: `127.1`, `0x7f000001`,
    `2130706433`; None: it is a name."""
    with suppress(ValueError):
        return str(ip_address(host.partition("%")[0]))
    with suppress(OSError):
        return socket.inet_ntoa(socket.inet_aton(host))
    return None


def is_public(address: str) -> bool:
    """True if an IP address is one of the public internet, and stands for none that is not."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return all(_is_global(each) for each in (found, *_meant_by(found)))


def _is_global(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address):
        # One that stands for another is judged by that one.
        is_given_out = address in _GLOBAL_UNICAST or address.ipv4_mapped is not None or address in _NAT64[0]
        return address.is_global and is_given_out
    return address.is_global and not address.is_multicast


def _meant_by(address: IPv4Address | IPv6Address) -> list[IPv4Address]:
    """The IPv4 addresses that an IPv6 address carries."""
    if isinstance(address, IPv4Address):
        return []
    carried = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    is_isatap = int(address) >> 32 & 0xFFFFFFFF in _ISATAP
    if is_isatap or any(address in network for network in _NAT64) or int(address) < 2**32:
        carried.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return [each for each in carried if each is not None]


async def resolve(target: WebhookUrl, *, allows_private: bool) -> str:
    """The IP address to send to.

    Raises:
        ForbiddenAddress: the name has none, or one that is not public and not allowed.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ForbiddenAddress(f"{target.host} has no address: {error}") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not addresses:
        raise ForbiddenAddress(f"{target.host} has no address")
    if not allows_private and not all(map(is_public, addresses)):
        raise ForbiddenAddress(f"{target.host} is an address that is not public")
    return addresses[0]
