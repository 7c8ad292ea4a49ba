"""A database whose disk is full, told from one that is out of reach."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from service.store.room import is_full
from service.store.session import Database, is_unavailable
from tests.support.service.full_database import full


def test_a_database_without_room_is_full_and_may_do_later(database: Database) -> None:
    with full(database), pytest.raises(DBAPIError) as raised, database.writing() as session:
        session.execute(text("CREATE TABLE larger (content TEXT)"))
    assert is_full(raised.value)
    assert is_unavailable(raised.value)


def test_a_database_out_of_reach_and_a_wrong_statement_are_not_full(database: Database) -> None:
    gone = Database("postgresql+psycopg://nobody@127.0.0.1:1/nothing?connect_timeout=2")
    with pytest.raises(DBAPIError) as raised, gone.reading() as session:
        session.execute(text("SELECT 1"))
    gone.close()
    assert not is_full(raised.value)
    with pytest.raises(DBAPIError) as raised, database.reading() as session:
        session.execute(text("SELECT nothing FROM nowhere"))
    assert not is_full(raised.value)
    assert not is_full(OSError())
