"""The declaration of a hyperparameter: the annotation of a field, which defines its check and its uses.

    grafting_beta2: Annotated[float | None, AVERAGE, used_by("shampoo", "none"), IN_FLIGHT] = None

The type says what kind of value it is: a word of a `Literal`, a flag, an integer, a number or a pair of numbers, and
whether None is legal. Numbers have a `Range`, a pair has two. Without `used_by` every member of the family uses it.
Without `IN_FLIGHT` a search must not change it in the middle of a training run.

To add a hyperparameter (its default must leave everything as it was before, because older checkpoints get it):

1. Declare it: a field of `shampoo.hyperparameters.Hyperparameters`, with its prose below. Rules about combinations with
   other hyperparameters go into the `_check_...` of their subject there; if it decides which state exists, it goes into
   `structure`.
2. Use it, in `step/` or `state/`.
3. Give it a range in the presets of `search_spaces/`, if it is worth searching.

Then `python -m tests.support.shampoo.generate` writes everything that follows from the declarations: the keyword
arguments of `Shampoo`, their help with all prose, the table of values that a search may set, and the table of the
manual, with the first sentence of each. Tests compare all four, and `test_live_hyperparameters` needs a row with the
effect of a change between two steps.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, TypeGuard, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

Kind: TypeAlias = Literal["float", "integer", "boolean", "choice", "pair"]


@dataclass(frozen=True, slots=True)
class Range:
    """Legal numbers, all of them finite."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    """True if `low` itself is not legal."""
    open_high: bool = False

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.open_low else value >= self.low
        return above and (value < self.high if self.open_high else value <= self.high)

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"{'>' if self.open_low else '>='} {self.low:g}"
        return f"in {'(' if self.open_low else '['}{self.low:g}, {self.high:g}{')' if self.open_high else ']'}"


NOT_NEGATIVE = Range(low=0.0)
POSITIVE = Range(low=0.0, open_low=True)
AVERAGE = Range(low=0.0, high=1.0, open_high=True)
"""Weight of the past in a moving average."""
AVERAGE_OR_SUM = Range(low=0.0, high=1.0)
"""Weight of the past in a moving average, or 1 for a sum."""


@dataclass(frozen=True, slots=True)
class UsedBy:
    """The members of the family that use a hyperparameter; for others it must have its default."""

    members: frozenset[str]


def used_by(*members: str) -> UsedBy:
    """The mark of a hyperparameter that only these members use."""
    return UsedBy(frozenset(members))


@dataclass(frozen=True, slots=True)
class InFlight:
    """The mark of a number that a search may change between two steps of a training run.

    The values that it weighs, scales or times keep their kind and shape. It may not change from or to 0, nor may an
    average become a sum (1) or a sum an average: that would add or remove state. A number that counts only at the
    beginning, or changes no step, is not marked.
    """


IN_FLIGHT = InFlight()
LR_ROUNDING = 1e-12
"""The largest distance below 0 that counts as rounding of a learning rate, as a share of the initial one: `LinearLR`
down to 0 in up to 20,000 steps misses 0 by no more than 5e-17 of it."""


_OTHER_WORDS: Mapping[tuple[str, str], str] = {
    ("preconditioner", "muon"): "spectral",
    ("preconditioner", "kl_shampoo"): "kl",
    ("preconditioner", "kl-shampoo"): "kl",
    **dict.fromkeys((("preconditioner", name) for name in ("adam", "adamw", "sgd")), "none"),
}
"""The member of the family for a word that others use for it."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """One hyperparameter as it is declared."""

    name: str
    kind: Kind
    default: Any
    optional: bool
    """True if None is legal."""
    ranges: tuple[Range, ...]
    """One for a number, two for a pair."""
    choices: tuple[str, ...]
    """Legal words of a choice."""
    used_by: frozenset[str] | None
    """Members that use it; None: all."""
    in_flight: bool

    def check(self, value: object) -> None:
        """Checks a value by itself.

        Raises:
            ValueError: it is not legal; the message holds it.
        """
        if not self._is_legal(value):
            raise ValueError(f"{self.name} must be {self.rule}, got {value!r}{self._hint(value)}")
        if self.kind == "pair":
            for index, (number, allowed) in enumerate(zip(value, self.ranges, strict=True)):  # type: ignore[call-overload]  # a pair
                if number not in allowed:
                    raise ValueError(f"{self.name}[{index}] must be {allowed}, got {number!r}")

    @property
    def rule(self) -> str:
        """The legal values in words."""
        if self.kind == "choice":
            return f"one of {self.choices}"
        if self.kind in ("boolean", "pair"):
            return "a bool" if self.kind == "boolean" else "a pair of numbers"
        (allowed,) = self.ranges
        unit = "an integer " if self.kind == "integer" else "a finite number " if allowed.high == math.inf else ""
        return f"{'None or ' if self.optional else ''}{unit}{allowed}"

    def _hint(self, value: object) -> str:
        """The end of a message about an illegal value: the word that was probably meant; "": unknown."""
        if self.kind != "choice" or not isinstance(value, str | torch.dtype):
            return ""
        word = str(value).removeprefix("torch.").lower()
        near = difflib.get_close_matches(_OTHER_WORDS.get((self.name, word), word), self.choices, n=1)
        return f": did you mean {near[0]!r}?" if near else ""

    def _is_legal(self, value: object) -> bool:
        if value is None:
            return self.optional
        match self.kind:
            case "choice":
                return isinstance(value, str) and value in self.choices
            case "boolean":
                return isinstance(value, bool)
            case "pair":
                return isinstance(value, tuple | list) and len(value) == 2 and all(map(_is_number, value))
            case "integer":
                return isinstance(value, int) and not isinstance(value, bool) and value in self.ranges[0]
            case "float":
                return _is_number(value) and value in self.ranges[0]


def values_of_group(group: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The hyperparameters of these names that a parameter group holds now, as plain values.

    Raises:
        ValueError: it lacks some; or the learning rate is a tensor that is not a single number on the CPU.
    """
    missing = [name for name in names if name not in group]
    if missing:
        raise ValueError(f"parameter group lacks {', '.join(missing)}")
    return {**{name: without_numpy(group[name]) for name in names}, "lr": lr_of_group(group)}


def lr_of_group(group: Mapping[str, Any]) -> Any:
    """The learning rate of a group as a plain value; 0 if a schedule has rounded it to less. `LinearLR` down to 0 does
    that, because it computes each rate from the previous one.

    Raises:
        ValueError: it is a tensor that is not a single number on the CPU.
    """
    lr, initial = as_number(group["lr"]), as_number(group.get("initial_lr"))
    if _is_number(lr) and lr < 0 and _is_number(initial) and lr >= -LR_ROUNDING * initial:
        return 0.0
    return lr


def as_number(lr: Any) -> Any:
    """A learning rate as a plain number: torch's own optimizers also accept a tensor or a number of numpy's.

    Raises:
        ValueError: it is a tensor of several numbers, or on a device that a step would have to wait for.
    """
    if not isinstance(lr, Tensor):
        return without_numpy(lr)
    if lr.numel() != 1 or lr.device.type != "cpu":
        raise ValueError(f"a tensor lr must be one number on the CPU, got shape {tuple(lr.shape)} on {lr.device}")
    return lr.item()


def without_numpy(value: Any) -> Any:
    """A value with plain numbers in place of numpy's, alone or in a tuple or list.

    A sweep over `np.logspace` has numpy numbers, and `torch.load(..., weights_only=True)` refuses their pickles.
    """
    if type(value) in (tuple, list):  # other kinds, such as named tuples, are not built from one iterable
        return type(value)(map(without_numpy, value))
    is_numpys = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if is_numpys else value


def declarations_of(cls: type) -> Iterator[Declaration]:
    """The declarations in the fields of a dataclass."""
    hints = get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        hint, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        optional = get_origin(hint) in (Union, types.UnionType)
        if optional:
            (hint,) = (one for one in get_args(hint) if one is not types.NoneType)
        members = [mark.members for mark in marks if isinstance(mark, UsedBy)]
        yield Declaration(
            name=field.name,
            kind=_kind(hint),
            default=field.default,
            optional=optional,
            ranges=tuple(mark for mark in marks if isinstance(mark, Range)),
            choices=get_args(hint) if get_origin(hint) is Literal else (),
            used_by=members[0] if members else None,
            in_flight=IN_FLIGHT in marks,
        )


def _kind(hint: Any) -> Kind:
    if get_origin(hint) is Literal:
        return "choice"
    kinds: dict[Any, Kind] = {float: "float", int: "integer", bool: "boolean", tuple[float, float]: "pair"}
    return kinds[hint]


def _is_number(value: object) -> TypeGuard[int | float]:
    """True for a finite number that fits into a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
