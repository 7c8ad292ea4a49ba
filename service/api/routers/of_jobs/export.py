"""A job as a file: its trials or their measurements as CSV, JSON Lines or Parquet, streamed as they are read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from service.api import examples, problems
from service.api.dependencies import DatabaseDependency, JobId, TurnsDependency
from service.api.lists.trial_filters import TrialFilters, checked
from service.exports.formats import MEDIA_TYPES, TableFormat, encoded
from service.exports.tables import TableName, table_of

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["jobs"])


@router.get(
    "/export",
    summary="Export a job",
    response_class=Response,
    responses={
        200: {
            "description": "The file.",
            "content": {
                media_type.partition(";")[0]: {
                    "schema": {"type": "string", **({} if media_type.startswith("text/") else {"format": "binary"})},
                    "example": examples.EXPORTS[table_format],
                }
                for table_format, media_type in MEDIA_TYPES.items()
            },
            "headers": {
                "Content-Disposition": {"description": "A name for the file.", "schema": {"type": "string"}},
            },
        },
        **problems.documented(404, 422, 503),
    },
)
async def export_job(
    database: DatabaseDependency,
    turns: TurnsDependency,
    job_id: JobId,
    trials: TrialFilters,
    table: Annotated[
        TableName, Query(description="The content of a row: a trial, or a measurement of one.")
    ] = TableName.TRIALS,
    table_format: Annotated[
        TableFormat, Query(alias="format", description="The format of the file.")
    ] = TableFormat.CSV,
) -> StreamingResponse:
    """The trials of a job with their parameters (`parameter.NAME`) and last metrics (`metric.NAME`), or all of their
    measurements; of the trials that `state`, `phase`, `value` and `parameter` leave, as in their list. Changes made
    meanwhile may be missing.

    In CSV, text that a spreadsheet would take for a formula has an apostrophe before it. MLflow and TensorBoard open
    what `shampoo-tuner export` writes.
    """

    def begin() -> Iterator[bytes]:
        with database.reading() as session:
            query = checked(session, job_id, trials)
        return encoded(table_of(database.reading, job_id, table, query), table_format)

    async with turns.one():
        pieces = await run_in_threadpool(begin)

    async def body() -> AsyncIterator[bytes]:
        while True:
            async with turns.one():  # a page each: others have their turns in between
                piece = await run_in_threadpool(next, pieces, None)
            if piece is None:
                return
            yield piece

    name = f"{job_id}-{table}.{table_format}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(body(), media_type=MEDIA_TYPES[table_format], headers=headers)
