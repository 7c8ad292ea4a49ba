"""The hyperparameters of an optimizer's groups; at each step those are checked that have changed since the last one."""

from __future__ import annotations

import copy
import itertools
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from shampoo.declarations import lr_of_group
from shampoo.group_rules import (
    require_effect_of_distributed,
    require_known_keys,
    require_peak_lr,
    require_structure,
)
from shampoo.hyperparameters import DECLARATIONS, NAMES, Hyperparameters

_ABSENT = object()
"""A value in place of a hyperparameter that a group lacks."""
_BESIDE_LR = tuple(name for name in NAMES if name != "lr")
_BETAS = _BESIDE_LR.index("betas")


@dataclass(frozen=True, slots=True)
class _Checked:
    lr: object
    """The group's value."""
    others: list[object]
    """Its values of `_BESIDE_LR`."""
    h: Hyperparameters
    fits: bool = False
    """True if they are known to fit the state of the group, and to have an effect on its parameters."""


class CheckedHyperparameters:
    """The hyperparameters that groups hold; they are checked again when one of them is another object than before.

    If only the learning rate is another object, as after each step of a schedule, only it is checked: no rule involves
    it and another hyperparameter.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Checked] = {}
        """By the number of a group."""

    def of(self, number: int, group: Mapping[str, Any]) -> Hyperparameters:
        """The hyperparameters of the group of this number.

        Raises:
            ValueError: one is illegal or missing.
        """
        return self._checked(number, group).h

    def fitting(self, number: int, group: Mapping[str, Any], built: Mapping[str, object]) -> Hyperparameters:
        """The hyperparameters of a group before a step, checked against `built`, the structure that its state was
        allocated for.

        Raises:
            ValueError: as `of`, or an unknown key resembles a hyperparameter, a value has no effect on these parameters
                or does not fit the state, or independent weight decay lacks its reference.
        """
        checked = self._checked(number, group)
        h = checked.h
        require_known_keys(group, is_live=True)
        if not checked.fits:
            require_effect_of_distributed(group["params"], h)
            require_structure(h, built)
            self._keep(number, _Checked(checked.lr, checked.others, h, fits=True))
        require_peak_lr(h, group["peak_lr"])
        return h

    def _checked(self, number: int, group: Mapping[str, Any]) -> _Checked:
        lr, others = group.get("lr", _ABSENT), [*map(group.get, _BESIDE_LR, itertools.repeat(_ABSENT))]
        known = self._known.get(number)
        if known is None or lr is _ABSENT or not all(map(operator.is_, others, known.others)):
            found = _Checked(lr, others, Hyperparameters.of_group(group))
        # A tensor can change and still be the same object.
        elif lr is known.lr and not isinstance(lr, Tensor):
            return known
        else:
            found = _Checked(lr, others, _with_lr(known.h, lr_of_group(group)), known.fits)
        self._keep(number, found)
        return found

    def _keep(self, number: int, checked: _Checked) -> None:
        """Keeps the result, unless betas are a list, which can also change and still be the same object."""
        if isinstance(checked.others[_BETAS], tuple):
            self._known[number] = checked
        else:
            self._known.pop(number, None)


def _with_lr(h: Hyperparameters, lr: object) -> Hyperparameters:
    """The same with another learning rate.

    Raises:
        ValueError: it is illegal.
    """
    DECLARATIONS["lr"].check(lr)
    other = copy.copy(h)
    object.__setattr__(other, "lr", lr)
    return other
