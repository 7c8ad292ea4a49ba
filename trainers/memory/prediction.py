"""Predicts what a trial needs of a rank's memory at least, in a process of its own that builds models without data in
them.

    python -m trainers.memory.prediction

reads a `trainers.memory.messages.Question` from each line of its standard input, and answers with a line. Predicted are
the weights, their gradients, the optimizer's state and scratch memory, and averaged weights: activations, batches and
the process itself come on top, so that what is said not to fit does not. Activations are measured in a step
(`trainers.memory.activations`).
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from shampoo import LoraRite, Shampoo, WeightAveraging
from shampoo.cost import estimate
from shampoo.hyperparameters import NAMES
from trainers.config import FOR_ADAPTERS, InvalidConfig, OptimizerConfig, TrialConfig
from trainers.config_part import Refusal
from trainers.data.roots import DataRoots
from trainers.identity.shape import model_shape
from trainers.memory.activations import TooLarge, activation_bytes
from trainers.memory.errors_without_data import NotesErrorsWithoutData
from trainers.memory.messages import (
    ActivationMemory,
    Answer,
    KeptMemory,
    PredictionProblem,
    ProblemKind,
    Quantity,
    Question,
    TrainedShape,
    answer_to_line,
)
from trainers.memory.peak import bytes_of_state
from trainers.memory.sizes import ImpossibleSizes, RefusesImpossibleSizes
from trainers.optimizers import build_trial_optimizer, parameter_groups
from trainers.workload.batches import check_has_examples
from trainers.workload.protocol import Workload
from trainers.workload.user_workload import explain
from trainers.workloads.messages import standard_output_for_answers
from trainers.workloads.registry import check_data_roots, load

LARGEST_PARAMETER_BYTES = 2**43
"""Size of a parameter up to which the optimizer's state for it is predicted: it has millions of blocks then."""
MAX_MODELS = 8
"""Kept at hand, by the workload's options."""


@dataclass(frozen=True, slots=True)
class _Model:
    workload: Workload
    model: nn.Module
    """Its tensors are on the meta device: shapes without data."""


class NotConstructed(Exception):
    """The workload's constructor or its `build_model` raised an error that is no refusal of its options; the message
    has it."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes that a trial on one rank keeps in memory from step to step."""

    weights: int
    """Parameters and buffers."""
    gradients: int
    averages: int
    """Averaged weights; of the snapshots of LAWA none, which come with time."""
    optimizer: int
    """The optimizer's state, from its first step on."""
    scratch: int
    """Working memory that the optimizer keeps between steps, at most."""


def predicted_bytes(config: TrialConfig, *, world_size: int = 1, device_type: str = "cpu") -> int:
    """Bytes that a rank of the trial needs at least. What ranks share is counted as if it were divided evenly.

    Raises:
        InvalidConfig: the workload, its model or the optimizer refuses the config.
        ValueError: the workload's groups of parameters do not fit the optimizer.
    """
    needs = needs_of(config, device_type=device_type)
    mode, num_shards = config.parallelism.mode, 1
    if mode != "ddp":
        num_shards = config.parallelism.shard_size or world_size
    is_divided = mode != "ddp" or config.optimizer.arguments.get("distributed") == "lossless"
    return (needs.weights + needs.gradients + needs.averages) // num_shards + (needs.optimizer + needs.scratch) // (
        world_size if is_divided else 1
    )


def needs_of(config: TrialConfig, *, device_type: str = "cpu") -> Needs:
    """The trial's needs on one rank: model and optimizer are built as for training, without data in them. Of a model
    with a parameter beyond `LARGEST_PARAMETER_BYTES` they are weights and gradients alone, which no machine holds.

    Raises:
        InvalidConfig: the workload, its model or the optimizer refuses the config.
        ValueError: the workload's groups of parameters do not fit the optimizer.
    """
    found = _model_of(config)
    weights = _bytes_of_weights(found.model)
    if any(parameter.nbytes > LARGEST_PARAMETER_BYTES for parameter in found.model.parameters()):
        trained = sum(parameter.nbytes for parameter in found.model.parameters() if parameter.requires_grad)
        return Needs(weights=weights, gradients=trained, averages=0, optimizer=0, scratch=0)
    groups = parameter_groups(found.workload, found.model, config.optimizer)
    counts: Counter[Tensor] = Counter()
    for group in groups:
        are_pairs = config.optimizer.name in FOR_ADAPTERS and group.get("paired", True)
        group["params"], counted = _one_of_each_kind(group["params"], at_once=2 if are_pairs else 1)
        counts.update(counted)
    optimizer = build_trial_optimizer(config, groups, num_ranks=1)
    inner, averages = optimizer, 0
    if isinstance(optimizer, WeightAveraging):
        inner = optimizer.optimizer
        averages = sum(counts[p] * bytes_of_state(kept) for p, kept in optimizer.averages.items())
    scratch = 0
    if isinstance(inner, Shampoo):
        scratch = max(_scratch_bytes(group, counts, device_type) for group in inner.param_groups)
    elif not isinstance(inner, LoraRite):  # torch's own make their state in the first step
        for parameter in counts:
            parameter.grad = torch.empty_like(parameter)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return Needs(
        weights=weights,
        gradients=sum(count * parameter.nbytes for parameter, count in counts.items()),
        averages=averages,
        optimizer=sum(counts[p] * bytes_of_state(kept) for p, kept in inner.state.items()),
        scratch=scratch,
    )


def _one_of_each_kind(params: Sequence[Tensor], *, at_once: int) -> tuple[list[Tensor], dict[Tensor, int]]:
    """Parameters of which all others have shapes and dtypes, and how many of these there are: they cost as much.

    Args:
        at_once: how many in a row stay together.
    """
    rows = list(zip(*(params[index::at_once] for index in range(at_once)), strict=True))
    kinds = [tuple((p.shape, p.dtype) for p in row) for row in rows]
    kept, count = dict(zip(kinds, rows, strict=True)), Counter(kinds)
    counted = {p: count[kind] for kind, row in kept.items() for p in row}
    return list(counted), counted


def _scratch_bytes(group: Mapping[str, Any], counts: Mapping[Tensor, int], device_type: str) -> int:
    arguments = {name: group[name] for name in NAMES}
    shapes: dict[torch.dtype, list[tuple[int, ...]]] = {}
    for parameter in group["params"]:
        shapes.setdefault(parameter.dtype, []).extend([tuple(parameter.shape)] * counts[parameter])
    return max(
        estimate(alike, dtype=dtype, device=device_type, **arguments).scratch_bytes for dtype, alike in shapes.items()
    )


def _model_of(config: TrialConfig) -> _Model:
    return _model(config.workload, _options_of(config))


def _options_of(config: TrialConfig) -> str:
    return json.dumps(dict(config.workload_options), sort_keys=True)


@lru_cache(maxsize=MAX_MODELS)
def _check_roots(workload_name: str, options: str, data_roots: DataRoots) -> None:
    check_data_roots(workload_name, json.loads(options), data_roots)


@lru_cache(maxsize=MAX_MODELS)
def _model(workload_name: str, options: str) -> _Model:
    try:
        workload = load(workload_name, json.loads(options))
    except (InvalidConfig, MemoryError):
        raise
    except (Exception, SystemExit) as error:  # the boundary to a user's own code
        raise NotConstructed(explain(error)) from error
    check_has_examples(workload)
    errors = NotesErrorsWithoutData()
    try:
        with torch.device("meta"), RefusesImpossibleSizes(), errors:
            model = workload.build_model()
    except (InvalidConfig, MemoryError):
        raise
    except ImpossibleSizes as error:
        raise InvalidConfig("workload_options", f"the model of {workload_name} has {error}") from error
    except (ValueError, AssertionError) as error:  # what has no values there raises others
        refusal = f"refused by the model of {workload_name}: {explain(error)}"
        raise InvalidConfig("workload_options", refusal) from error
    except (Exception, SystemExit) as error:  # the boundary to a user's own code
        if errors.may_have_caused(error):
            raise
        raise NotConstructed(explain(error)) from error
    if not isinstance(model, nn.Module):
        raise InvalidConfig("workload", f"build_model of {workload_name} gives a {type(model).__name__}, no nn.Module")
    return _Model(workload, without_data(model))


def without_data(model: nn.Module) -> nn.Module:
    """The model with all of its parameters on the meta device, those too that were made of values; shared ones stay
    shared."""
    moved: dict[nn.Parameter, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            if not parameter.is_meta:
                if parameter not in moved:
                    moved[parameter] = nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)
                module.register_parameter(name, moved[parameter])
    return model


def _bytes_of_weights(model: nn.Module) -> int:
    return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))


def _activation_bytes(config: TrialConfig, *, world_size: int) -> int:
    found = _model_of(config)
    model_bytes = _bytes_of_weights(found.model)
    return activation_bytes(config, found.workload, model_bytes=model_bytes, world_size=world_size)


def _activations(config: TrialConfig, *, world_size: int) -> ActivationMemory | PredictionProblem:
    try:
        return ActivationMemory(_activation_bytes(config, world_size=world_size))
    except (InvalidConfig, NotConstructed, TooLarge, MemoryError):
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary to a user's own code
        return PredictionProblem(ProblemKind.STEP, explain(error))


def predict_an_example() -> None:
    """Predicts for one small trial: torch imports for half a second when it makes its first model without data."""
    for name in ("shampoo", "adamw"):
        optimizer = OptimizerConfig(name)
        predicted_bytes(
            TrialConfig(workload="digits-mlp", optimizer=optimizer, num_steps=1, batch_size=1, evaluate_every=1)
        )


def _answer(asked: Question) -> Answer:
    config = asked.config
    try:
        if asked.data_roots is not None:
            _check_roots(config.workload, _options_of(config), asked.data_roots)
        if asked.quantity is Quantity.ACTIVATIONS:
            return _activations(config, world_size=asked.world_size)
        if asked.quantity is Quantity.SHAPE:
            return TrainedShape(model_shape(_model_of(config).model))
        is_cuda = asked.device_type == "cuda" and torch.cuda.is_available()
        return KeptMemory(
            predicted_bytes(config, world_size=asked.world_size, device_type=asked.device_type),
            weights_bytes=_bytes_of_weights(_model_of(config).model),
            device_bytes=torch.cuda.get_device_properties(0).total_memory if is_cuda else None,
            num_train_examples=_model_of(config).workload.num_train_examples,
        )
    except InvalidConfig as error:
        return Refusal.of(error)
    except NotConstructed as error:
        return PredictionProblem(ProblemKind.CONSTRUCTION, str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary to a user's own code
        return PredictionProblem(ProblemKind.UNKNOWN, explain(error))


def main() -> None:
    """Answers until standard input ends."""
    torch.set_num_threads(1)
    answers = standard_output_for_answers()
    for line in sys.stdin:
        answers.write(answer_to_line(_answer(Question.from_line(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
