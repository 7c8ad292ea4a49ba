"""Predicts what a trial needs of a rank's memory at least, in a process of its own that builds models without data in
them.

    python -m trainers.memory_prediction

reads a JSON object from each line of its standard input, `{"config": ..., "world_size": 1, "device_type": "cpu"}`, and
answers with a line `{"bytes": ..., "device_bytes": ...}`, or `{"problem": ...}` if there is no telling. Predicted are
the weights, their gradients, the optimizer's state and scratch memory, and averaged weights: activations, batches and
the process itself come on top, so that what is said not to fit does not.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from shampoo.cost import estimate
from shampoo.hyperparameters import SHARING
from trainers.config import TrialConfig
from trainers.optimizers import parameter_groups
from trainers.user_workload import explain
from trainers.workload import Workload, load

MAX_MODELS = 8
"""Kept at hand, by the workload's options."""


@dataclass(frozen=True, slots=True)
class _Model:
    workload: Workload
    model: nn.Module
    """Its tensors are on the meta device: shapes without data."""


def predicted_bytes(config: TrialConfig, *, world_size: int = 1, device_type: str = "cpu") -> int:
    """Bytes that a rank of the trial needs at least. What ranks share is counted as if it were divided evenly.

    Raises:
        InvalidConfig: the workload or the optimizer refuses the config.
    """
    found = _model(config.workload, json.dumps(dict(config.workload_options), sort_keys=True))
    mode, num_shards = config.parallelism.mode, 1
    if mode != "ddp":
        num_shards = config.parallelism.shard_size or world_size
    weights = _bytes([*found.model.parameters(), *found.model.buffers()])
    groups = parameter_groups(found.workload, found.model, config.optimizer)
    trained = _bytes(parameter for group in groups for parameter in group["params"])
    copies = 1 if config.averaging is None else 2  # gradients, and averages
    state, scratch = _optimizer_bytes(config, groups, device_type=device_type)
    is_divided = mode != "ddp" or config.optimizer.arguments.get("distributed") == "lossless"
    return (weights + copies * trained) // num_shards + (state + scratch) // (world_size if is_divided else 1)


def _optimizer_bytes(config: TrialConfig, groups: Iterable[Mapping[str, Any]], *, device_type: str) -> tuple[int, int]:
    """State of all parameters, and the scratch memory of the group that needs most."""
    state = scratch = 0
    for group in groups:
        own = {name: value for name, value in group.items() if name != "params"}
        arguments = {**config.optimizer.arguments, **own}
        match config.optimizer.name:
            case "adamw":
                state += (3 if arguments.get("amsgrad") else 2) * _bytes(group["params"])
            case "sgd":
                state += _bytes(group["params"]) if arguments.get("momentum") else 0
            case "shampoo":
                arguments = {
                    name: tuple(value) if isinstance(value, list) else value
                    for name, value in arguments.items()
                    if name not in SHARING
                }
                for dtype in {parameter.dtype for parameter in group["params"]}:
                    shapes = [tuple(parameter.shape) for parameter in group["params"] if parameter.dtype == dtype]
                    cost = estimate(shapes, dtype=dtype, device=device_type, **arguments)
                    state += cost.state_bytes
                    scratch = max(scratch, cost.scratch_bytes)
    return state, scratch


@lru_cache(maxsize=MAX_MODELS)
def _model(workload_name: str, options: str) -> _Model:
    workload = load(workload_name, json.loads(options))
    with torch.device("meta"):
        return _Model(workload, workload.build_model())


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _answer(line: str) -> dict[str, Any]:
    asked = json.loads(line)
    try:
        config = TrialConfig.from_json(asked["config"])
        is_cuda = asked["device_type"] == "cuda" and torch.cuda.is_available()
        return {
            "bytes": predicted_bytes(config, world_size=asked["world_size"], device_type=asked["device_type"]),
            "device_bytes": torch.cuda.get_device_properties(0).total_memory if is_cuda else None,
        }
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary to a user's own code
        return {"problem": explain(error)}


def main() -> None:
    """Answers until standard input ends."""
    torch.set_num_threads(1)
    # What a workload prints, however it does it, must not get between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        answers.write(json.dumps(_answer(line)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
