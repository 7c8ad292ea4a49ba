"""The cost of a side's configs in operations and memory, as `shampoo.cost` predicts it from the shapes of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from search_spaces import Scalar, SearchSpace
from service.scheduler.insights.compared import EndedTrial
from trainers.identity.values import ModelShape, ParameterShape
from trainers.workload.description import ParameterGroup, ParameterRule


@dataclass(frozen=True, slots=True)
class OptimizerCost:
    """The cost of an optimizer, for all ranks together."""

    step_operations: float
    """Operations of a mean step, refreshes included."""
    state_bytes: int


@dataclass(frozen=True, slots=True)
class GroupShapes:
    """Parameters with their own settings."""

    settings: Mapping[str, Any]
    shapes: Sequence[tuple[int, ...]]


def grouped(
    shape: ModelShape, groups: Sequence[ParameterGroup], options: Mapping[str, Any]
) -> list[GroupShapes] | None:
    """The parameters of a model in the groups that its workload trains them in; None: they cannot be told from the
    shapes.

    Args:
        groups: the groups of the workload's description.
        options: the workload's options.
    """
    settings = [group.settings_with(options) for group in groups]
    if any(own is None or not group.any_of for own, group in zip(settings, groups, strict=True)):
        return None
    tables = {parameter.shape for parameter in shape.parameters if parameter.kind == "embedding"}
    shapes: list[list[tuple[int, ...]]] = [[] for _ in range(len(groups) + 1)]
    for parameter in shape.parameters:
        index = next(
            (
                index
                for index, group in enumerate(groups)
                if any(_holds(rule, parameter, tables) for rule in group.any_of)
            ),
            len(groups),
        )
        shapes[index] += [parameter.shape] * parameter.count
    return [GroupShapes(own or {}, found) for own, found in zip([*settings, {}], shapes, strict=True) if found]


def _holds(rule: ParameterRule, parameter: ParameterShape, tables: set[tuple[int, ...]]) -> bool:
    """True if a rule applies to a parameter, judged by its kind and shape. A rule about names, or about the output of a
    language model, is taken to mean that output, which has the shape of the table of words."""
    dims = len(parameter.shape)
    if (rule.min_dims is not None and dims < rule.min_dims) or (rule.max_dims is not None and dims > rule.max_dims):
        return False
    is_table = parameter.kind == "embedding"
    if rule.module_types and not (rule.of_output_embeddings or rule.name_parts):
        return is_table and not {"Embedding", "EmbeddingBag"}.isdisjoint(rule.module_types)
    if rule.of_output_embeddings or rule.name_parts:
        return not is_table and parameter.shape in tables
    return True


class PredictedCosts:
    """The costs of a side's configs for one model."""

    def __init__(self, space: SearchSpace, groups: Sequence[GroupShapes], *, device: str) -> None:
        """Prepares to predict.

        Args:
            space: the space of a Shampoo.
            groups: the model's parameters.
            device: `cpu` or `cuda`.
        """
        # It imports torch: a run that does not need it should not wait.
        from shampoo.cost import estimate
        from shampoo.hyperparameters import NAMES

        self._estimate, self._names = estimate, frozenset(NAMES)
        self._space, self._groups, self._device = space, groups, device

    def of(self, values: Mapping[str, Scalar]) -> OptimizerCost | None:
        """The cost of the config with these values; None: the optimizer refuses them."""
        arguments = self._space.assign(values).optimizer_arguments
        operations, state_bytes = 0.0, 0
        for group in self._groups:
            own = {name: value for name, value in {**arguments, **group.settings}.items() if name in self._names}
            given: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in own.items()
            }
            try:
                found = self._estimate(group.shapes, device=self._device, **given)
            except ValueError:
                return None
            operations += found.operations_per_step
            state_bytes += found.state_bytes
        return OptimizerCost(operations, state_bytes)

    def agrees_with(self, trial: EndedTrial) -> bool:
        """False if the trial measured clearly less state than its config would have on the model's shapes: some of its
        parameters are frozen, or its workload trains them in groups that it does not describe."""
        predicted = self.of(trial.parameters)
        if predicted is None or trial.state_bytes is None or trial.place is None:
            return predicted is not None
        return trial.state_bytes >= 0.98 * predicted.state_bytes / trial.place.world_size
