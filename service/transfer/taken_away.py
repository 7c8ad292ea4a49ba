"""A config for a model that was never tuned, as it is taken away: with all that is known of it, and the command that
trains it where a workload builds the model."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.evidence.formats.written import TakenAway
from service.evidence.in_words.wording import optimizer_title
from service.evidence.recommended import PasteableConfig
from service.transfer.ranking import Transferred
from service.transfer.words import header_of
from trainers.config import InvalidConfig, TrialConfig
from trainers.workload.user_workload import is_reference

NUM_MEASUREMENTS = 10
"""Measurements of a trial, as of a job that says nothing of them."""


@dataclass(frozen=True, slots=True)
class AskedModel:
    """The model that configs are wanted for, as far as its fingerprint names it."""

    source: str
    """The source of its description, for people; may be empty."""
    workload: str | None
    """The name of the workload that builds it; None: none does."""
    options: Mapping[str, Any] | None
    """Options of the workload; None: they are not known."""


def taken_away(
    found: Transferred, model: AskedModel, *, schedule: Mapping[str, Any], training: Mapping[str, Any]
) -> TakenAway:
    """A config as it is written in every format.

    Args:
        schedule: its fields, none of those that a script needs left out.
        training: `num_steps`, `batch_size`, and settings beside them.
    """
    optimizer, header = found.config.optimizer, header_of(found)
    config = PasteableConfig(
        workload=model.workload or "",
        optimizer=optimizer,
        config=dict(found.config.arguments),
        schedule=dict(schedule),
        training=dict(training),
        workload_options=dict(model.options or {}),
        parameter_groups=list(found.origin.parameter_groups),
    )
    name = model.source or model.workload
    title = optimizer_title(optimizer) + (f" for {name}" if name else "")
    command, unsaid = _command(config, model)
    return TakenAway(config, title, [title, *header], command, unsaid, beside=header)


def _command(config: PasteableConfig, model: AskedModel) -> tuple[str | None, list[str]]:
    """A line for a shell that trains the config on one rank, and what it leaves unsaid."""
    if model.workload is None:
        return None, ["no workload builds this model, and workloads are what the command trains"]
    if model.options is None:
        return None, ["the fingerprint does not say with which options of the workload this model is built"]
    try:
        trial = TrialConfig.from_json(
            {
                **config.training,
                "workload": model.workload,
                "workload_options": config.workload_options,
                "optimizer": {"name": config.optimizer, "arguments": config.config},
                "schedule": config.schedule,
                "evaluate_every": max(1, config.training["num_steps"] // NUM_MEASUREMENTS),
            }
        )
    except InvalidConfig as error:
        return None, [f"the command would refuse it: {error}"]
    line = json.dumps(trial.to_json(), separators=(",", ":"))
    unsaid = ["ranks and device: it trains on one rank, on the CPU"]
    if is_reference(model.workload):
        unsaid.append(f"the code of {model.workload}: the line is for the directory that has it")
    return f"torchrun --nproc-per-node 1 -m trainers.run {shlex.quote(line)}", unsaid
