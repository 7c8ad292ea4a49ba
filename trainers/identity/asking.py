"""Asks processes of their own about models, so that whoever asks imports nothing of anyone's code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from trainers.config import Json, TrialConfig
from trainers.data.roots import DataRoots
from trainers.identity.values import Fingerprint, ToldModel
from trainers.workloads.describe import TIMEOUT_SECONDS, told_by_process


def ask_model(
    config: TrialConfig,
    *,
    data_roots: DataRoots | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    may_wait: Callable[[], bool] = lambda: True,
) -> ToldModel:
    """The model that a trial would train (`trainers.identity`), which is built without weights.

    Args:
        data_roots: the directories that the workload may read; None: all that this process may.
        may_wait: as for `told_by_process`.

    Raises:
        InvalidConfig: it cannot be built here; the message says why.
        DescriptionTooSlow: not in this time.
        DescriptionKilled: its process was killed.
        DescriptionUnwanted: it may not be waited for any more.
    """
    return told_by_process(
        [json.dumps(config.to_json()), *([] if data_roots is None else [json.dumps(asdict(data_roots))])],
        ToldModel.from_json,
        what=f"{config.workload}: to build its model",
        timeout_seconds=timeout_seconds,
        module="trainers.identity",
        may_wait=may_wait,
    )


def ask_fingerprint(
    name: str,
    options: Mapping[str, Json],
    *,
    frozen: Sequence[str] = (),
) -> Fingerprint:
    """The fingerprint of the model that a workload, `module:Class` or a file of weights names
    (`trainers.identity.fingerprinting`); a model is built without weights.

    Args:
        frozen: patterns of the names of parameters that are not trained; of a file or a module.

    Raises:
        InvalidConfig: there is none; the message says why.
        DescriptionTooSlow: not in this time.
        DescriptionKilled: its process was killed.
    """
    return told_by_process(
        [name, json.dumps(options), json.dumps(list(frozen))],
        Fingerprint.from_json,
        field="name",
        what=f"{name}: to build its model",
        module="trainers.identity.fingerprinting",
    )
