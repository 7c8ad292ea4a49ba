"""The fingerprint of a model that a job will train, computed by a process that can build it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from service.domain import Phase
from service.errors import InvalidInput, WorkloadNotDescribed
from service.specification.identity import ModelOfJob, fingerprint_of
from service.specification.job import JobSpecification
from service.specification.planning import JobPlan
from trainers.config import InvalidConfig
from trainers.data.roots import DataRoots
from trainers.identity.asking import ask_model
from trainers.workloads.describe import TIMEOUT_SECONDS, DescriptionKilled, DescriptionTooSlow

EARLIER = ("winners", "nearest")
"""Entries of `pinned` that ask for configs of tuned models; they need the fingerprint of this one."""


def field_with_winners(specification: JobSpecification) -> str | None:
    """The field in which a job asks for configs of earlier ones; None: it does not."""
    if any(entry in specification.pinned for entry in EARLIER):
        return "pinned"
    asking = (
        index
        for index, baseline in enumerate(specification.baselines)
        if any(entry in baseline.pinned for entry in EARLIER)
    )
    return next((f"baselines[{index}].pinned" for index in asking), None)


def model_for_winners(plan: JobPlan, *, data_roots: DataRoots | None = None) -> ModelOfJob | None:
    """The model that the job's default trial trains, for the configs of earlier models that the job asks for; None: it
    asks for none. Takes seconds, in a process of its own: do not call it inside a transaction.

    Args:
        data_roots: the directories that the workload may read; None: all that this process may.

    Raises:
        InvalidInput: the model cannot be built here, or only clients have it; names the field that asks for winners.
        WorkloadNotDescribed: the process was killed or too slow; it may succeed later. Names the field, too.
    """
    field = field_with_winners(plan.specification)
    if field is None:
        return None
    problem = "winners and nearest configs go by the model, and which one this is could not be told: "
    if plan.specification.external is not None:
        raise InvalidInput(field, problem + "that of external trials is their clients'")
    if importlib.util.find_spec("torch") is None:
        raise InvalidInput(field, problem + "torch is not installed beside this API")
    try:
        return model_of(plan, data_roots=data_roots)
    except (DescriptionKilled, DescriptionTooSlow) as error:
        raise WorkloadNotDescribed(f"{field}: {problem}{error.message}") from error
    except InvalidConfig as error:
        raise InvalidInput(field, problem + error.message) from error


def model_of(
    plan: JobPlan,
    *,
    data_roots: DataRoots | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    may_wait: Callable[[], bool] = lambda: True,
) -> ModelOfJob:
    """The model that the job's default trial trains. Takes seconds, in a process of its own.

    Args:
        data_roots: the directories that the workload may read; None: all that this process may.
        may_wait: asked again and again; False ends the process.

    Raises:
        InvalidConfig: it cannot be built here; the message says why.
        DescriptionTooSlow: not in this time.
        DescriptionKilled: its process was killed.
        DescriptionUnwanted: it may not be waited for any more.
    """
    config = plan.trial_config(Phase.SEARCH, plan.spaces[Phase.SEARCH].defaults())
    told = ask_model(config, data_roots=data_roots, timeout_seconds=timeout_seconds, may_wait=may_wait)
    return ModelOfJob(fingerprint_of(plan, told.digest), told.shape)
