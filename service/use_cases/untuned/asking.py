"""Asks a separate process for the common answer of many tuned models: that needs NumPy, which this process does not
load."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import lru_cache

from service.transfer.pooled import NotPooled, PooledAnswer, PoolMember, PoolQuestion
from service.transfer.ranking import is_near_shipped
from service.transfer.situation import Situation
from trainers.config import InvalidConfig
from trainers.workloads.describe import told_by_process

POOL_MODULE = "service.scheduler.policy.pooled_trials"
"""The module that the process runs."""
POOL_SECONDS = 15.0
"""Time for an answer, by judgement: it takes one to three seconds, half a second of it for imports, and longer on a
busy machine."""
NUM_KEPT = 64
"""The number of cached answers, by judgement: each depends only on its question and the shipped table. A question
contains the trials of a project's jobs, so it changes when a job ends or is deleted: up to 300 kB each."""


def question_of(target: Situation, own: Sequence[PoolMember] = ()) -> PoolQuestion | None:
    """The question to all tuned models together; None: fewer than two are near.

    Args:
        own: the tuned models of a project (`members`), all near.
    """
    asks_table = is_near_shipped(target)
    return PoolQuestion(target, tuple(own), asks_table) if asks_table or len(own) > 1 else None


def ask_pooled(question: PoolQuestion) -> PooledAnswer | NotPooled:
    """The answer of all tuned models together, from a process, in one to three seconds."""
    if importlib.util.find_spec("scipy") is None:
        return NotPooled("SciPy is not installed beside this API")
    try:
        return _asked(question.to_text())
    except (InvalidConfig, OSError) as error:
        return NotPooled(error.message if isinstance(error, InvalidConfig) else str(error))


@lru_cache(NUM_KEPT)
def _asked(question: str) -> PooledAnswer:
    """Raises: InvalidConfig: there is no answer; OSError: no process could be started."""
    return told_by_process(
        [],
        PooledAnswer.from_json,
        what="the process that asks them",
        timeout_seconds=POOL_SECONDS,
        module=POOL_MODULE,
        given=question.encode(),
    )
