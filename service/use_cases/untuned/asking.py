"""Asks a process of its own for what all tuned models of the shipped table say together: it takes NumPy, and this one
loads none."""

from __future__ import annotations

import importlib.util
import json
from functools import lru_cache

from service.transfer.pooled import NotPooled, PooledAnswer
from service.transfer.ranking import is_near_shipped
from service.transfer.situation import ConfigsWanted
from trainers.config import InvalidConfig
from trainers.workloads.describe import ask_process

POOL_MODULE = "service.scheduler.policy.pooled_trials"
"""The module that the process runs."""
POOL_SECONDS = 15.0
"""Time for an answer, by judgement: it takes about a second, half of it for imports, and longer on a busy machine."""
NUM_KEPT = 256
"""Answers that are kept, by judgement: each depends on the question and the shipped table alone."""


def question_of(wanted: ConfigsWanted) -> str | None:
    """The question that asks all tuned models of the table together; None: they have nothing to say, as one job alone
    is to answer, or no model of the table is near."""
    if wanted.proxy_job is not None or not is_near_shipped(wanted.target):
        return None
    return json.dumps(wanted.target.to_json(), sort_keys=True)


def ask_pooled(question: str) -> PooledAnswer | NotPooled:
    """The answer of all tuned models of the table together, from a process, in a second or so.

    Args:
        question: of `question_of`.
    """
    if importlib.util.find_spec("scipy") is None:
        return NotPooled("SciPy is not installed beside this API")
    try:
        return _asked(question)
    except (InvalidConfig, OSError) as error:
        return NotPooled(error.message if isinstance(error, InvalidConfig) else str(error))


@lru_cache(NUM_KEPT)
def _asked(question: str) -> PooledAnswer:
    """Raises: InvalidConfig: there is no answer; OSError: no process could be started."""
    answer = ask_process(
        [question], what="the process that asks them", timeout_seconds=POOL_SECONDS, module=POOL_MODULE
    )
    return PooledAnswer.from_json(answer)
