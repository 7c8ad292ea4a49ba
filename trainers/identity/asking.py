"""Asks a process of its own for the fingerprint of a model, so that whoever asks imports nothing of anyone's code."""

from __future__ import annotations

import json
from collections.abc import Mapping

from trainers.config import InvalidConfig, Json
from trainers.identity.values import Fingerprint
from trainers.workloads.describe import TIMEOUT_SECONDS, ask_process


def ask_fingerprint(name: str, options: Mapping[str, Json], *, timeout_seconds: float = TIMEOUT_SECONDS) -> Fingerprint:
    """The fingerprint of the model that a workload, `module:Class` or a file of weights names
    (`trainers.identity.fingerprinting`); a model is built without weights.

    Raises:
        InvalidConfig: there is none; the message says why.
        DescriptionTooSlow: not in this time.
        DescriptionKilled: its process was killed.
    """
    answer = ask_process(
        [name, json.dumps(options)],
        what=f"{name}: to build its model",
        timeout_seconds=timeout_seconds,
        module="trainers.identity.fingerprinting",
    )
    if "refused" in answer:
        raise InvalidConfig("name", str(answer["refused"]))
    return Fingerprint.from_json(answer)
