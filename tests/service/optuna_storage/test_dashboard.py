"""The words of `shampoo-tuner optuna-dashboard` where it cannot start; what it shows, `browser.test_optuna` sees."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from service.store.session import Database
from tests.support.service.commands import run


@pytest.mark.parametrize(
    ("host", "shown", "family"), [("127.0.0.1", "127.0.0.1", socket.AF_INET), ("::1", "[::1]", socket.AF_INET6)]
)
def test_an_address_that_is_taken_is_named(
    host: str, shown: str, family: socket.AddressFamily, sqlite_database: Database
) -> None:
    try:
        listener = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip(f"this machine has no {host}")
    with listener:
        port = str(listener.getsockname()[1])
        refused = run("optuna-dashboard", "--host", host, "--port", port, "--database-url", sqlite_database.url)
    assert refused.exit_code == 1
    assert f"cannot listen on {shown}:{port}: Address already in use" in refused.stderr


def test_a_database_that_is_not_there_is_named(tmp_path: Path) -> None:
    refused = run("optuna-dashboard", "--data-dir", str(tmp_path / "none"))
    assert refused.exit_code == 1
    assert "there is no database yet" in refused.stderr
    assert list(tmp_path.iterdir()) == []
