"""Where webhooks may lead, and how what is sent is signed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
from typing import Any

import pytest

from service.webhooks.addresses import ForbiddenAddress, check_url, is_public, read_url, resolve
from service.webhooks.signing import new_secret, signed_headers
from tests.support import event_loop


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "169.254.169.254",
        "192.168.0.1",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1%eth0",
        "fd00::1",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "2002:7f00:1::",
        "64:ff9b::a00:1",
        "fec0::1",
        "::ffff:0:127.0.0.1",
        "2606:4700::5efe:10.0.0.1",
        "2606:4700::200:5efe:10.0.0.1",
        "ff0e::1",
        "nonsense",
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_public_addresses(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://example.org/", "https://"),
        ("https://", "name a host"),
        ("https://user:word@example.org/", "a user or a password"),
        ("https://example.org/#part", "fragment"),
        ("https://example.org:0/", "port 0"),
        ("https://example.org:99999/", "not a URL"),
        ("https://[::1/", "not a URL"),
        ("https://example.org/a b", "without spaces"),
        ("https://example.org/\r\nHost: x", "without spaces"),
        ("https://exämple.org/", "ASCII"),
        (f"https://example.org/{'x' * 2000}", "2000"),
        ("http://localhost:8730/", "not public"),
        ("http://127.0.0.1/", "not public"),
        ("http://[::ffff:10.0.0.1]/", "not public"),
        ("http://localhost./", "not public"),
        ("http://127.1/", "not public"),
        ("http://0177.0.0.1/", "not public"),
        ("http://0x7f000001/", "not public"),
        ("http://2130706433/", "not public"),
    ],
)
def test_urls_that_are_refused(url: str, why: str) -> None:
    with pytest.raises(ForbiddenAddress, match=why):
        check_url(url, allows_private=False)


def test_the_parts_of_a_url() -> None:
    target = read_url("https://Example.org:8443/hook?x=1")
    assert (target.host, target.port, target.path, target.authority) == (
        "example.org",
        8443,
        "/hook?x=1",
        "example.org:8443",
    )
    assert read_url("http://[2606:4700::1]").authority == "[2606:4700::1]"


@pytest.mark.parametrize(
    ("found", "is_allowed"),
    [(["1.1.1.1"], True), (["1.1.1.1", "10.0.0.1"], False), (["127.0.0.1"], False), ([], False)],
)
def test_all_that_a_name_resolves_to_must_be_public(
    monkeypatch: pytest.MonkeyPatch, found: list[str], is_allowed: bool
) -> None:
    def getaddrinfo(*_of: Any, **_options: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    target = read_url("https://rebound.example.org/")
    if is_allowed:
        assert event_loop.run(resolve(target, allows_private=False)) == "1.1.1.1"
    else:
        with pytest.raises(ForbiddenAddress):
            event_loop.run(resolve(target, allows_private=False))


def test_a_signature_is_that_of_the_specification() -> None:
    # The example of https://github.com/standard-webhooks/standard-webhooks, with its own secret.
    headers = signed_headers(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp=1614265330,
        body=b'{"test": 2432232314}',
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    secret = new_secret()
    key = base64.b64decode(secret.removeprefix("whsec_"))
    assert len(key) == 32
    signed = signed_headers(secret, message_id="a", timestamp=5, body=b"x")
    expected = hmac.new(key, b"a.5.x", hashlib.sha256).digest()
    assert signed["webhook-signature"] == f"v1,{base64.b64encode(expected).decode()}"
