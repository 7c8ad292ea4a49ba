"""One message, sent to a real server: what is refused, and what is not followed."""

from __future__ import annotations

import pytest

from service.webhooks import sending
from service.webhooks.sending import send
from tests.support import event_loop
from tests.support.service.webhooks import Receiver


def ask(url: str, *, allows_private: bool = True) -> sending.Reply:
    return event_loop.run(send(url, b"{}", {}, allows_private=allows_private))


def test_private_addresses_redirects_and_slow_servers(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = ask(receiver.url, allows_private=False)
    assert (refused.is_taken, refused.status) == (False, None)
    assert "not public" in refused.text
    assert receiver.requests == []
    receiver.status, receiver.location = 302, "http://169.254.169.254/"
    redirected = ask(receiver.url)
    assert (redirected.is_taken, redirected.status) == (False, 302)
    assert redirected.text.startswith("redirects are not followed")
    assert len(receiver.requests) == 1
    monkeypatch.setattr(sending, "SENDING_SECONDS", 0.3)
    receiver.is_slow = True
    slow = ask(receiver.url)
    assert (slow.is_taken, slow.status) == (False, None)
    assert "within 0.3 s" in slow.text
    assert ask("http://localhost:1/").status is None
