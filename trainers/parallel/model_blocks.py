"""Modules of a model that are treated on their own: its blocks, and normalisations that keep statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from torch import nn

from trainers.config import InvalidConfig
from trainers.torch_internals import NormWithStatistics
from trainers.workload.protocol import HasBlocks, Workload


def blocks_of(workload: Workload, model: nn.Module) -> list[nn.Module]:
    """The blocks of a model, which are sharded, recomputed and compiled one by one; each once, in the model's order.

    The modules that the workload names; without that, the elements of the model's outermost `ModuleList`s, or else its
    direct children that have parameters.

    Raises:
        InvalidConfig: the workload names something that is not a module within the model, or one inside another.
    """
    if isinstance(workload, HasBlocks):
        blocks = list(dict.fromkeys(workload.blocks(model)))
        _check(blocks, model)
        return blocks
    in_lists = list(dict.fromkeys(_elements_of_lists(model)))
    return in_lists or [child for child in model.children() if any(True for _ in child.parameters())]


def with_running_statistics(model: nn.Module) -> list[NormWithStatistics]:
    """Normalisations with buffers of statistics, which want their parameters in the buffers' dtype, float32."""
    return [
        module
        for module in model.modules()
        if isinstance(module, NormWithStatistics) and module.running_mean is not None and module.weight is not None
    ]


def _elements_of_lists(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield from _blocks_among(child)
        else:
            yield from _elements_of_lists(child)


def _blocks_among(elements: Iterable[nn.Module]) -> Iterator[nn.Module]:
    for element in elements:
        if isinstance(element, nn.ModuleList | nn.ModuleDict):  # it is never called itself
            yield from _blocks_among(element.children())
        elif any(True for _ in element.parameters()):
            yield element


def _check(blocks: Sequence[nn.Module], model: nn.Module) -> None:
    names = {module: name for name, module in model.named_modules() if name}
    for block in blocks:
        if block not in names:
            raise InvalidConfig("workload", f"blocks() gave {type(block).__name__}, which is not inside the model")
    inside = {inner: block for block in blocks for inner in block.modules() if inner is not block}
    for block in blocks:
        if block in inside:
            outer = names[inside[block]]
            raise InvalidConfig("workload", f"blocks() gave {names[block]}, which is inside {outer}")
