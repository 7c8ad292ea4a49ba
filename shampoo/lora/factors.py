"""The factors of pairs: the role of a factor in its pair, its state, and the step of all factors of one shape at
once."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shampoo.linalg.per_matrix import per_matrix
from shampoo.lora.factor_step import precondition, unmagnify
from shampoo.lora.hyperparameters import LoraRiteHyperparameters
from shampoo.state.buckets import state_dtype
from shampoo.step.autocast import own_precision
from shampoo.step.weights import per_row
from shampoo.torch_internals import foreach_add_, foreach_copy_

MOMENTS = ("momentum", "second_moment", "escaped_mass", "weights")
"""The state of a factor without the basis, in the order of `precondition`."""


@dataclass(frozen=True, slots=True)
class Factor:
    """One factor of a pair, and the other one."""

    param: Tensor
    other: Tensor
    is_first: bool
    """True for A (r, in, ...), whose matrix is its transpose; False for B (out, r, ...)."""

    @property
    def matrix(self) -> Tensor:
        """(n, r), of the parameter's dtype."""
        return _matrix(self.param, self.is_first)

    @property
    def other_matrix(self) -> Tensor:
        """(m, r), likewise."""
        return _matrix(self.other, not self.is_first)

    @property
    def gradient(self) -> Tensor:
        """(n, r), likewise. Only for a factor that has a gradient."""
        assert self.param.grad is not None
        return _matrix(self.param.grad, self.is_first)

    def as_parameter(self, matrix: Tensor) -> Tensor:
        """A matrix (n, r) in the parameter's shape."""
        return (matrix.mT if self.is_first else matrix).reshape(self.param.shape)

    def new_state(self) -> dict[str, Any]:
        """The state before the first step: 0."""
        like = self.param.new_empty((), dtype=state_dtype(self.param.dtype))
        (n, r), m = self.matrix.shape, len(self.other_matrix)
        return {
            "basis": like.new_zeros(m, r),
            "momentum": like.new_zeros(n, r),
            "second_moment": like.new_zeros(r, r),
            "escaped_mass": like.new_zeros(()),
            "weights": like.new_zeros(2),
            "num_skipped": like.new_zeros((), dtype=torch.int64),
        }


def _matrix(tensor: Tensor, is_first: bool) -> Tensor:
    return tensor.flatten(1).mT if is_first else tensor.flatten(1)


def factors_of(params: Sequence[Tensor]) -> list[Factor]:
    """The factors of a list in which A and B of each pair alternate, in its order."""
    pairs = zip(params[::2], params[1::2], strict=True)
    return [factor for A, B in pairs for factor in (Factor(A, B, is_first=True), Factor(B, A, is_first=False))]


def alike(factors: Iterable[Factor]) -> list[list[Factor]]:
    """The factors by shape, dtype and device."""
    found: dict[tuple[object, ...], list[Factor]] = {}
    for factor in factors:
        kind = factor.matrix.shape, factor.other_matrix.shape, factor.param.dtype, factor.param.device
        found.setdefault(kind, []).append(factor)
    return list(found.values())


class FactorStack:
    """Factors that are `alike`, with their gradients in the coordinates of partners before any of them moves."""

    def __init__(self, factors: Sequence[Factor]) -> None:
        self._factors = factors
        self._dtype = state_dtype(factors[0].param.dtype)
        others = torch.stack([factor.other_matrix for factor in factors]).to(self._dtype)
        gradients = torch.stack([factor.gradient for factor in factors]).to(self._dtype)
        with own_precision([others]):
            (
                self._basis,
                self._inverse,
                self._unmagnified,
                self.squared_norms,
                self._is_finite,
                self._has_begun,
            ) = per_matrix(unmagnify, others, gradients)

    def step(self, state: Mapping[Tensor, dict[str, Any]], h: LoraRiteHyperparameters, *, clip: Tensor | None) -> None:
        """Moves the factors and their states.

        Args:
            state: by parameter.
            clip: a scalar by which the unmagnified gradients are multiplied; None: they are not.
        """
        if clip is not None:
            self._unmagnified.mul_(clip.to(self._unmagnified))
        states = [state[factor.param] for factor in self._factors]
        old = [torch.stack([kept[name] for kept in states]) for name in ("basis", *MOMENTS)]
        with own_precision(old):
            *moments, direction = per_matrix(
                functools.partial(precondition, betas=h.betas, eps=h.eps),
                self._unmagnified,
                self._basis,
                self._inverse,
                *old,
            )
        for name, before, after in zip(("basis", *MOMENTS), old, (self._basis, *moments), strict=True):
            kept = after.where(per_row(self._has_begun, after), before)
            foreach_copy_([one[name] for one in states], list(kept.unbind()))
        before = torch.stack([factor.matrix for factor in self._factors]).to(self._dtype)
        after = before * (1 - h.lr * h.weight_decay) - h.lr * direction
        moved = after.where(per_row(self._is_finite, after), before).unbind()
        foreach_copy_(
            [factor.param for factor in self._factors],
            [factor.as_parameter(matrix) for factor, matrix in zip(self._factors, moved, strict=True)],
        )
        foreach_add_([one["num_skipped"] for one in states], list((~self._is_finite).unbind()))
