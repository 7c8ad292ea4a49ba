"""What `shampoo-tuner optuna-dashboard` says where it cannot start; what it shows, `browser.test_optuna` sees."""

from __future__ import annotations

import socket
from pathlib import Path

from service.store.session import Database
from tests.support.service.commands import run


def test_an_address_that_is_taken_is_named(sqlite_database: Database) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        refused = run("optuna-dashboard", "--port", port, "--database-url", sqlite_database.url)
    assert refused.exit_code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in refused.stderr


def test_a_database_that_is_not_there_is_named(tmp_path: Path) -> None:
    refused = run("optuna-dashboard", "--data-dir", str(tmp_path / "none"))
    assert refused.exit_code == 1
    assert "there is no database yet" in refused.stderr
    assert list(tmp_path.iterdir()) == []
