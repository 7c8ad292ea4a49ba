"""Asks a separate process for the common answer of many tuned models: that needs NumPy, which this process does not
load."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import lru_cache

from service.transfer.pooled import NotPooled, PooledAnswers, PoolMember, PoolQuestion
from service.transfer.ranking import is_near_shipped
from service.transfer.situation import FamilyMember, Situation
from trainers.config import InvalidConfig
from trainers.workloads.describe import told_by_process

POOL_MODULE = "service.scheduler.policy.pooled_trials"
"""The module that the process runs."""
POOL_SECONDS = 15.0
"""Time for the answers, by judgement: they take one to four seconds, half a second of it for imports, and longer on a
busy machine."""
NUM_KEPT = 64
"""The number of cached answers, by judgement: each depends only on its question and the shipped table. A question
contains the trials of a project's jobs, so it changes when a job ends or is deleted: up to 300 kB each."""


def question_of(
    target: Situation, methods: Sequence[FamilyMember], own: Sequence[PoolMember] = ()
) -> PoolQuestion | None:
    """The question to all tuned models together; None: of no method two are near.

    Args:
        methods: the members of Shampoo's family that are asked about.
        own: the tuned models of a project (`members`), all near.
    """
    question = PoolQuestion(target, tuple(methods), tuple(own), asks_table=is_near_shipped(target))
    return question if any(len(question.members(name)) > 1 for name in methods) else None


def ask_pooled(question: PoolQuestion) -> PooledAnswers | NotPooled:
    """The answers of all tuned models together, from a process, in one to four seconds."""
    if importlib.util.find_spec("scipy") is None:
        return NotPooled("SciPy is not installed beside this API")
    try:
        return _asked(question.to_text())
    except (InvalidConfig, OSError) as error:
        return NotPooled(error.message if isinstance(error, InvalidConfig) else str(error))


@lru_cache(NUM_KEPT)
def _asked(question: str) -> PooledAnswers:
    """Raises: InvalidConfig: there is no answer; OSError: no process could be started."""
    return told_by_process(
        [],
        PooledAnswers.from_json,
        what="the process that asks them",
        timeout_seconds=POOL_SECONDS,
        module=POOL_MODULE,
        given=question.encode(),
    )
