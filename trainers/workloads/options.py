"""Checks of workload options: each gives the value, or raises `OptionRefused` with the option and what it got.

And the options `size`, `width` and `depth`, which several workloads have. Nothing here imports torch: the descriptions
use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field, replace
from typing import Any, ClassVar, Protocol, TypeVar

from search_spaces.nearest import did_you_mean
from trainers.workload.description import WorkloadOption

MAX_LAYERS = 1_000
"""Layers of a model, or blocks of them: as many as the deepest transformers have (Wang et al., arXiv 2203.00555). Of
far more, a process would build until it is killed."""

MAX_READERS = 256
"""Processes of a rank that read data, by judgement: more than a machine has CPUs for each of its ranks."""

Shape = TypeVar("Shape")


class OptionRefused(ValueError):
    """A value that an option cannot have, whatever the others are."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(f"{option} {message}")
        self.option = option
        """`hidden_sizes`, or an element of it, `hidden_sizes[0]`."""


class _OfBlocks(Protocol):
    """A dataclass that is the shape of a transformer."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def width(self) -> int: ...
    @property
    def num_heads(self) -> int: ...


ShapeOfBlocks = TypeVar("ShapeOfBlocks", bound=_OfBlocks)

SIZE = WorkloadOption(
    "tiny",
    "size of the model: tiny or small; steps and batch size have defaults for tiny",
    choices=("tiny", "small"),
)


def width_option(what: str, *, null: str = "as the size has it") -> WorkloadOption:
    """The option `width`. `what`: whose units or channels it is, and what follows it."""
    return WorkloadOption(None, f"{what}; null: {null}", role="shape")


def depth_option(what: str, *, null: str = "as the size has it") -> WorkloadOption:
    """The option `depth`. `what`: the layers that it counts."""
    return replace(layers_option(what, null=null), role="shape")


def layers_option(what: str, *, null: str = "as the size has it") -> WorkloadOption:
    """An option that counts layers of the model. `what`: these."""
    return WorkloadOption(None, f"{what}, at most {MAX_LAYERS:,}; null: {null}", maximum=MAX_LAYERS)


def integer(name: str, value: object, *, minimum: int = 1) -> int:
    """An integer of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise OptionRefused(name, f"must be an integer >= {minimum}, got {value!r}")
    return value


def integers(name: str, value: object) -> tuple[int, ...]:
    """A list of integers >= 1, each of a layer."""
    if not isinstance(value, list | tuple):
        raise OptionRefused(name, f"must be a list of integers >= 1, got {value!r}")
    if len(value) > MAX_LAYERS:
        raise OptionRefused(name, f"must have at most {MAX_LAYERS:,} elements, got {len(value):,}")
    return tuple(integer(f"{name}[{index}]", element) for index, element in enumerate(value))


def share(name: str, value: object) -> float:
    """A number in [0, 1)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise OptionRefused(name, f"must be a number in [0, 1), got {value!r}")
    return float(value)


def positive_share(name: str, value: object) -> float:
    """A number in (0, 1]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise OptionRefused(name, f"must be a number in (0, 1], got {value!r}")
    return float(value)


def open_share(name: str, value: object) -> float:
    """A number in (0, 1)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise OptionRefused(name, f"must be a number in (0, 1), got {value!r}")
    return float(value)


def boolean(name: str, value: object) -> bool:
    """True or false, and no number that stands for it."""
    if not isinstance(value, bool):
        raise OptionRefused(name, f"must be true or false, got {value!r}")
    return value


def text(name: str, value: object) -> str:
    """A string that is not empty."""
    if not isinstance(value, str) or not value:
        raise OptionRefused(name, f"must be a string that is not empty, got {value!r}")
    return value


def one_of(name: str, value: object, choices: Sequence[str]) -> str:
    """One of some words."""
    if not isinstance(value, str) or value not in choices:
        raise OptionRefused(name, f"must be one of {', '.join(choices)}, got {value!r}{did_you_mean(value, choices)}")
    return value


def without_effect(name: str, value: object, reason: str) -> None:
    """Refuses an option that is given (not None) where it would do nothing.

    Raises:
        ValueError: it is given; it may be the other option that is wrong.
    """
    if value is not None:
        raise ValueError(f"{name} has no effect {reason}, got {value!r}")


def shape_of_size(size: object, shapes: Mapping[str, Shape]) -> Shape:
    """The shape that a workload gives its option `size`, a word such as `tiny`."""
    return shapes[one_of("size", size, tuple(shapes))]


def widened(sizes: Sequence[int], width: object) -> tuple[int, ...]:
    """Units of layers, the first with `width` and the others in proportion, rounded; None: as they are."""
    if width is None or not sizes:
        without_effect("width", width, "without layers")
        return tuple(sizes)
    first = integer("width", width)
    return tuple(max(1, round(size * first / sizes[0])) for size in sizes)


def deepened(sizes: Sequence[Shape], depth: object, *, minimum: int = 1) -> tuple[Shape, ...]:
    """`depth` layers in place of some others, each of which stands for about equally many; None: as they are."""
    if depth is None or not sizes:
        without_effect("depth", depth, "without layers")
        return tuple(sizes)
    count = integer("depth", depth, minimum=minimum)
    return tuple(sizes[index * len(sizes) // count] for index in range(count))


def with_width_and_depth(shape: ShapeOfBlocks, *, width: object, depth: object) -> ShapeOfBlocks:
    """The shape of a transformer, except for what is given. Heads keep their width, as in published models of a family.

    Raises:
        ValueError: an option is no integer >= 1, or the width is no multiple of a head's.
    """
    if depth is not None:
        shape = replace(shape, num_blocks=integer("depth", depth))
    if width is not None:
        head_width = shape.width // shape.num_heads
        given = integer("width", width)
        if given % head_width != 0:
            raise ValueError(f"width must be a multiple of {head_width}, got {given}")
        shape = replace(shape, width=given, num_heads=given // head_width)
    return shape
