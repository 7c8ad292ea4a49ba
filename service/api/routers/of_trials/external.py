"""Trials that others train: hand them out, take in what they measure, and say whether they go on.

The API writes a request; the job's run, in a worker, answers it. Whoever asks waits for that without a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Annotated, TypeVar, cast

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from service.access.audit import record_deed
from service.api import problems
from service.api.dependencies import (
    CallerDependency,
    DatabaseDependency,
    IdempotencyKey,
    JobId,
    Now,
    ReadSession,
    TrialNumber,
    TurnsDependency,
    address_of,
)
from service.api.run_answers import Answers
from service.api.schemas.external import DecisionRead, EndCreate, ReportCreate, SuggestionCreate, SuggestionRead
from service.api.strict_json import refuse_repeated_names
from service.domain import JobState
from service.specification.external.messages import Report, RunAnswer
from service.store.repositories import JobRepository
from service.store.session import Session
from service.use_cases.external import asking
from service.use_cases.external.asking import Asked

ANSWER_SECONDS = 8.0
"""Time for a run to answer, which takes it a tenth of a second but where it waits for other trials. Whoever gets none
asks again."""
RETRY_AFTER_SECONDS = 2
"""Time until a client asks again for an answer that its job's run has not given yet. By judgement; measured on SQLite,
half of all answers took 0.1 s."""

T = TypeVar("T")

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["external trials"])


async def _answers(request: Request) -> Answers:
    return cast("Answers", request.app.state.answers)


AnswersDependency = Annotated[Answers, Depends(_answers)]
WaitSeconds = Annotated[
    float, Query(ge=0, le=ANSWER_SECONDS, description="Seconds to wait for the run's answer before 202.")
]
_REPLAYED = {"Idempotent-Replayed": {"description": "`true`: of an earlier request.", "schema": {"type": "string"}}}


class _Transactions:
    """Transactions that are over before anybody waits."""

    def __init__(self, database: DatabaseDependency, turns: TurnsDependency) -> None:
        self._database = database
        self._turns = turns

    async def write(self, use: Callable[[Session], T]) -> T:
        """The result of `use`, whose changes are committed."""
        return await self._in_turn(self._database.writing, use)

    async def read(self, use: Callable[[Session], T]) -> T:
        """The result of `use`, which sees one state of the database."""
        return await self._in_turn(self._database.reading, use)

    async def _in_turn(self, begin: Callable[[], AbstractContextManager[Session]], use: Callable[[Session], T]) -> T:
        def transaction() -> T:
            with begin() as session:
                return use(session)

        async with self._turns.one():
            return await run_in_threadpool(transaction)


class _Exchange:
    """One request to the run of a job: stored in a transaction, and answered by the run or by what is stored."""

    def __init__(
        self,
        transactions: Annotated[_Transactions, Depends()],
        answers: AnswersDependency,
        response: Response,
        idempotency_key: IdempotencyKey = None,
        wait_seconds: WaitSeconds = ANSWER_SECONDS,
    ) -> None:
        self.transactions = transactions
        self.key = idempotency_key
        self._answers = answers
        self._response = response
        self._wait_seconds = wait_seconds

    async def report(self, job_id: str, number: int, body: Report, *, now: datetime) -> DecisionRead:
        """Stores what a client says of its trial; the run's decision, or that it is still to come."""
        asked: Asked = await self.transactions.write(
            lambda session: asking.report(session, job_id, number, body, key=self.key, now=now)
        )
        answer = await self.answer_to(asked)
        if answer is None:
            self.ask_again()
            return DecisionRead.of(None)
        self.mark_replayed(asked)
        return DecisionRead.of(asking.checked(answer))

    async def answer_to(self, asked: Asked) -> RunAnswer | None:
        """The answer to a request; None: there is none in time. Without a run there is nothing to wait for."""
        if asked.answer is not None or asked.job_state is not JobState.RUNNING:
            return asked.answer
        return await self._answers.wait(asked.request_id, seconds=self._wait_seconds)

    def ask_again(self) -> None:
        """Makes the response one that asks the client to send the same request again."""
        self._response.status_code = 202
        self._response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)

    def mark_replayed(self, asked: Asked) -> None:
        """Says in the response's headers if the answer is that of an earlier request."""
        if asked.is_replayed:
            self._response.headers["Idempotent-Replayed"] = "true"


ExchangeDependency = Annotated[_Exchange, Depends()]


@router.post(
    "/suggestions",
    summary="Ask for a trial to train",
    dependencies=[Depends(refuse_repeated_names)],
    response_model=SuggestionRead,
    responses={
        200: {"description": "A trial, or that there will be none any more.", "headers": _REPLAYED},
        202: {
            "model": SuggestionRead,
            "description": "There is none yet: ask again with the same key, and nothing is handed out twice.",
            "headers": problems.RETRY_AFTER,
        },
        **problems.documented(403, 404, 408, 409, 413, 415, 422, 503),
    },
)
async def suggest_trial(
    body: SuggestionCreate,
    exchange: ExchangeDependency,
    caller: CallerDependency,
    now: Now,
    job_id: JobId,
    request: Request,
) -> SuggestionRead:
    """Hands out the trial that the job's search wants tried next, of a job that was submitted with `external`.

    The trial belongs to this client as long as it reports (`lease_seconds`). If the trial has been measured before, the
    client continues from a checkpoint up to `begins_at_step` if it finds one, and otherwise starts again.
    """
    transactions = exchange.transactions
    asked = await transactions.write(
        lambda session: asking.ask_for_trial(session, job_id, body, key=exchange.key, now=now)
    )
    if asked is None:
        return SuggestionRead(
            status="done",
            job_state=await transactions.read(lambda session: JobRepository(session).get(job_id).state),
            key=exchange.key or "",
        )
    answer = await exchange.answer_to(asked)
    if answer is None or answer.trial is None:
        state = await transactions.read(lambda session: JobRepository(session).get(job_id).state)
        if state.is_final:
            return SuggestionRead(status="done", job_state=state, key=asked.key)
        exchange.ask_again()
        return SuggestionRead(status="waiting", job_state=state, key=asked.key)
    exchange.mark_replayed(asked)
    if not asked.is_replayed:
        target = f"{job_id}/{answer.trial.number}"
        await transactions.write(
            lambda session: record_deed(session, caller, "suggest_trial", target, address=address_of(request), now=now)
        )
    return SuggestionRead(status="trial", trial=answer.trial, job_state=asked.job_state, key=asked.key)


@router.post(
    "/trials/{number}/reports",
    summary="Report measurements of a trial",
    dependencies=[Depends(refuse_repeated_names)],
    response_model=DecisionRead,
    responses={
        200: {"description": "Whether the trial goes on.", "headers": _REPLAYED},
        202: {
            "model": DecisionRead,
            "description": "The report is kept, and the job's run takes it in later: go on. Sent again with the same "
            "key, it has the run's answer once there is one.",
            "headers": problems.RETRY_AFTER,
        },
        **problems.documented(403, 404, 408, 409, 413, 415, 422, 503),
    },
)
async def report_trial(
    body: ReportCreate, exchange: ExchangeDependency, now: Now, job_id: JobId, number: TrialNumber
) -> DecisionRead:
    """Stores what a client has measured, renews its lease, and says whether the trial continues, is paused or stops.

    The measurement of the last step completes the trial. A report without measurements says that the client is still
    there. A step that is reported again counts once. Reports on a trial that has ended, or whose job has, are ignored,
    and the answer tells the client to stop.
    """
    return await exchange.report(job_id, number, body, now=now)


@router.post(
    "/trials/{number}/end",
    summary="End a trial with its client",
    dependencies=[Depends(refuse_repeated_names)],
    response_model=DecisionRead,
    responses={
        200: {"description": "It has ended, with this client at least.", "headers": _REPLAYED},
        202: {
            "model": DecisionRead,
            "description": "The end is kept, and the job's run takes it in later.",
            "headers": problems.RETRY_AFTER,
        },
        **problems.documented(403, 404, 408, 409, 413, 415, 422, 503),
    },
)
async def end_trial(
    body: EndCreate, exchange: ExchangeDependency, now: Now, job_id: JobId, number: TrialNumber
) -> DecisionRead:
    """Ends a trial, with its last measurements: it completed, it failed for a reason, or its client must leave it to
    another one. Nothing changes if the trial, or its job, has ended already."""
    return await exchange.report(job_id, number, body, now=now)


@router.get(
    "/trials/{number}/decision",
    summary="Ask whether a trial goes on",
    responses=problems.documented(404, 409, 422, 503),
)
def read_decision(
    session: ReadSession,
    job_id: JobId,
    number: TrialNumber,
    lease: Annotated[str, Query(min_length=1, max_length=40, description="The lease that the suggestion gave.")],
) -> DecisionRead:
    """Says whether a trial continues, for a client that has nothing to report: a user may have stopped it, or paused
    the job. It does not renew the lease: a report without measurements does."""
    return DecisionRead.of(asking.decision(session, job_id, number, lease=lease))
