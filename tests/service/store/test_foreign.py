"""Databases of other programs: nothing can be written to them, on either kind."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from service.store.foreign import foreign_database


def test_a_foreign_database_can_be_read_and_not_written(empty_database_url: str) -> None:
    own = create_engine(empty_database_url)
    with own.begin() as connection:
        connection.execute(text("CREATE TABLE customers (name VARCHAR(9))"))
        connection.execute(text("INSERT INTO customers VALUES ('Ada')"))
    foreign = foreign_database(empty_database_url)
    assert foreign.has_tables(["customers"])
    assert not foreign.has_tables(["customers", "studies"])
    engine = create_engine(foreign.url, **foreign.engine_options)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT name FROM customers")).scalars().all() == ["Ada"]
    for statement in ("CREATE TABLE studies (id INTEGER)", "DELETE FROM customers"):
        with engine.connect() as connection, pytest.raises(DBAPIError, match=r"read-?only"):
            connection.execute(text(statement))
    engine.dispose()
    own.dispose()


def test_a_foreign_database_shows_no_password() -> None:
    foreign = foreign_database("postgresql://me:geheim@127.0.0.1/x?sslpassword=geheim")
    assert foreign.shown == "postgresql://me:***@127.0.0.1/x"
    assert "geheim" not in repr(foreign)
