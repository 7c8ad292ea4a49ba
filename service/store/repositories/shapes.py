"""Shapes of models, by fingerprint."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from service.store.models import ModelShapeRow
from trainers.identity.values import ModelShape


class ModelShapeRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def put(self, fingerprint: str, shape: ModelShape) -> None:
        """Stores the shape of a model, if it is not there; two runs may do so at once."""
        if self._session.get(ModelShapeRow, fingerprint) is not None:
            return
        values = {"fingerprint": fingerprint, "content": {"parameters": shape.to_json()}}
        insert = postgresql.insert if self._session.get_bind().dialect.name == "postgresql" else sqlite.insert
        self._session.execute(insert(ModelShapeRow).values(values).on_conflict_do_nothing())

    def of(self, fingerprints: Collection[str]) -> dict[str, ModelShape]:
        """The shapes that are known of these models."""
        rows = self._session.scalars(select(ModelShapeRow).where(ModelShapeRow.fingerprint.in_(fingerprints)))
        return {row.fingerprint: ModelShape.from_json(row.content["parameters"]) for row in rows}
