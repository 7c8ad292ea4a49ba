"""The hyperparameters of a parameter group of `LoraRite`: their meaning and their legal values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from shampoo.declarations import (
    AVERAGE,
    IN_FLIGHT,
    NOT_NEGATIVE,
    POSITIVE,
    Declaration,
    declarations_of,
    values_of_group,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraRiteHyperparameters:
    """Checked hyperparameters of a parameter group; flat and JSON-able.

    Raises:
        ValueError: one is not legal; the message holds its name and value.
    """

    lr: Annotated[float, NOT_NEGATIVE, IN_FLIGHT] = 1e-3
    """Learning rate, >= 0. Steps of a pair have the length of Adam's in the coordinates of the product, so the best
    value differs from AdamW's on the same factors."""

    betas: Annotated[tuple[float, float], AVERAGE, AVERAGE, IN_FLIGHT] = (0.9, 0.999)
    """(β1, β2), each in [0, 1): β1 averages the preconditioned gradient, β2 the second moment and the escaped mass; for
    parameters that are not factors, both are Adam's."""

    eps: Annotated[float, POSITIVE, IN_FLIGHT] = 1e-6
    """Added to the root of the second moment's eigenvalues, > 0, and of Adam's squares."""

    weight_decay: Annotated[float, NOT_NEGATIVE, IN_FLIGHT] = 0.0
    """Decoupled weight decay λ, >= 0: W ← (1 − lr·λ)W, for each factor."""

    clip_unmagnified_grad: Annotated[float | None, POSITIVE, IN_FLIGHT] = 1.0
    """Largest norm of the unmagnified gradients of all pairs together, > 0; None: they are not clipped. Unlike a norm
    of the factors' own gradients it does not depend on how a pair is scaled."""

    paired: bool = True
    """True: `params` are pairs, A and B of one adapter after A and B of another. False: plain AdamW steps."""

    def __post_init__(self) -> None:
        for declaration in DECLARATIONS.values():
            declaration.check(getattr(self, declaration.name))

    @classmethod
    def of_group(cls, group: Mapping[str, Any]) -> Self:
        """The hyperparameters that a parameter group holds now."""
        return cls(**values_of_group(group, NAMES))


DECLARATIONS: Mapping[str, Declaration] = {one.name: one for one in declarations_of(LoraRiteHyperparameters)}
NAMES: tuple[str, ...] = tuple(DECLARATIONS)
