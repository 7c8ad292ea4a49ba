"""Low-rank adapters of the library `peft` in a model of `transformers`, whose weights stay as they are."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn

from trainers.config import InvalidConfig
from trainers.installation.extras import optional_library
from trainers.workloads.huggingface.architecture import transformers
from trainers.workloads.options import OptionRefused, integer, text, without_effect

EXTRA = "lora"


@dataclass(frozen=True, slots=True)
class Adapters:
    """Adapters that are trained in place of weights: W₀ + alpha/rank · B A, A drawn at random and B 0."""

    rank: int
    alpha: float
    targets: tuple[str, ...] | None
    """The last part of the names of layers that get one; None: all linear layers but the head."""

    def add_to(self, model: nn.Module, *, trains_head: bool) -> None:
        """Puts the adapters into a model, which keeps its class, and freezes all else.

        Args:
            trains_head: whether what lies outside the base model, as the head of a classifier, goes on being trained.

        Raises:
            InvalidConfig: the model has no such layers, or all of them have a side that is shorter than the rank.
        """
        base = cast("nn.Module", model.base_model)
        of_base = {id(parameter) for parameter in base.parameters()}
        head = [p for p in model.parameters() if id(p) not in of_base and p.requires_grad] if trains_head else []
        library = _peft()
        settings = library.LoraConfig(r=self.rank, lora_alpha=self.alpha, target_modules=self._chosen(model, base))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # says that the weights of GPT-2's layers are transposed
            library.inject_adapter_in_model(settings, model)
        for parameter in head:
            parameter.requires_grad_(True)

    def _chosen(self, model: nn.Module, base: nn.Module) -> list[str]:
        """The names in `model` of the layers that get an adapter: of those that the base model has and that take part
        in the task."""
        linear = (nn.Linear, transformers().pytorch_utils.Conv1D)
        kinds = linear if self.targets is None else (*linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding)
        inner = {id(module) for module in base.modules()}
        layers = {
            name: cast("Tensor", module.weight)
            for name, module in model.named_modules()
            if id(module) in inner and isinstance(module, kinds) and module.weight.requires_grad
        }
        known = dict.fromkeys(name.rpartition(".")[2] for name in layers)
        wanted = known if self.targets is None else self.targets
        for target in wanted:
            if target not in known:
                raise InvalidConfig(
                    "workload_options.lora_targets",
                    f"{type(model).__name__} has no layer {target!r} that could have an adapter "
                    f"(known: {', '.join(known)}), got {list(wanted)}",
                )
        chosen = {name: layer for name, layer in layers.items() if name.rpartition(".")[2] in wanted}
        if not chosen:
            raise InvalidConfig(
                "workload_options.lora_rank",
                f"{type(model).__name__} has no linear layer but its head, got {self.rank}: set lora_targets",
            )
        largest = max(min(weight.shape[0], weight[0].numel()) for weight in chosen.values())
        if self.rank > largest:
            raise InvalidConfig(
                "workload_options.lora_rank",
                f"must be at most {largest}, the largest rank that weights of these layers can have, got {self.rank}",
            )
        return list(chosen)


def adapters_of(*, lora_rank: object, lora_alpha: object, lora_targets: object) -> Adapters | None:
    """The adapters that the workload's options ask for; None: all weights are trained.

    Raises:
        ValueError: an option is illegal, or has no effect without `lora_rank`; `peft` is not installed.
    """
    if lora_rank is None:
        without_effect("lora_alpha", lora_alpha, "without lora_rank")
        without_effect("lora_targets", lora_targets, "without lora_rank")
        return None
    rank = integer("lora_rank", lora_rank)
    _peft()
    return Adapters(rank, _alpha(lora_alpha, rank), _targets(lora_targets))


def _alpha(value: object, rank: int) -> float:
    if value is None:
        return float(rank)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise OptionRefused("lora_alpha", f"must be a number > 0, got {value!r}")
    return float(value)


def _targets(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not value:
        raise OptionRefused("lora_targets", f"must be a list of names of layers that is not empty, got {value!r}")
    return tuple(text(f"lora_targets[{index}]", name) for index, name in enumerate(value))


def _peft() -> Any:
    transformers()  # switches the hub off, which `peft` would look into
    return optional_library("peft", extra=EXTRA, purpose="the option lora_rank")
