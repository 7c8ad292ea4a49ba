"""The part of a question about a model that was never tuned which is answered before its turn at the database: what
tuned models say together, which a process works out."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from fastapi.concurrency import run_in_threadpool

from service.api.dependencies import CallerDependency, DatabaseDependency, TurnsDependency
from service.api.preparation import PreparationsDependency
from service.api.schemas.untuned import UntunedQuestion
from service.errors import NotDoneYet, ServiceBusy
from service.transfer.pooled import NotPooled, PooledAnswers
from service.transfer.situation import ConfigsWanted
from service.use_cases.untuned.asking import ask_pooled, question_of
from service.use_cases.untuned.members import OwnMembers, own_members


@dataclass(frozen=True, slots=True)
class PreparedQuestion:
    """A question for configs of a model that was never tuned, with what only a process can tell."""

    question: UntunedQuestion
    pooled: PooledAnswers | NotPooled | None
    """The answers of tuned models together; None: fewer than two are near."""


class PoolReader:
    """Asks the tuned models that a caller may know of for what they say together."""

    def __init__(
        self,
        caller: CallerDependency,
        database: DatabaseDependency,
        turns: TurnsDependency,
        preparations: PreparationsDependency,
    ) -> None:
        self._caller, self._database, self._turns, self._preparations = caller, database, turns, preparations

    async def answer(self, wanted: ConfigsWanted) -> PooledAnswers | NotPooled | None:
        """The answers of tuned models together, or why there is none, as while too many ask processes; None: fewer than
        two are near."""
        if wanted.proxy_job is not None:
            return None

        def read() -> OwnMembers:
            with self._database.reading() as session:
                return own_members(session, wanted.target, wanted.members, project=self._caller.sees)

        async with self._turns.one():
            own = await run_in_threadpool(read)
        question = question_of(wanted.target, wanted.members, own.members)
        if question is None:
            return None
        work = functools.partial(ask_pooled, question)
        try:
            found = await self._preparations.do(question.to_text(), work, token=self._caller.token)
        except (ServiceBusy, NotDoneYet) as error:
            return NotPooled(str(error))
        return found if isinstance(found, NotPooled) else found.with_remarks(own.remarks)


PoolReaderDependency = Annotated[PoolReader, Depends(PoolReader)]


async def _prepared_question(question: UntunedQuestion, pool: PoolReaderDependency) -> PreparedQuestion:
    return PreparedQuestion(question, await pool.answer(question.wanted))


PreparedQuestionDependency = Annotated[PreparedQuestion, Depends(_prepared_question)]
