"""The prices of cheaper settings: what the best config of a side would lose and gain with one parameter at a value that
costs less; plain values, stored with the insights."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from search_spaces import Scalar


class Basis(StrEnum):
    """The basis on which the price of a setting in the objective is known."""

    MEASURED = "measured"
    """Two configs that differ in this setting almost alone, both trained with the same new seeds."""
    ESTIMATED = "estimated"
    """The model that the search `auto` goes by, of all compared trials."""


@dataclass(frozen=True, slots=True)
class RelativeChange:
    """The change of a measured value with a setting, as shares of the value with the best config: 0.01 is 1% more."""

    share: float
    """The change as a share of the value."""
    low: float
    """The lower end of its 90% interval."""
    high: float
    """The upper end of that interval."""
    num_trials: int
    """The number of trials that it is computed from."""

    @property
    def is_seen(self) -> bool:
        """True if the interval leaves zero out."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class CheaperSetting:
    """A value of one parameter that needs fewer operations or less state than the best config's."""

    parameter: str
    """The name of the parameter."""
    best_value: Scalar
    """The value that the best config has."""
    value: Scalar
    """The cheaper one."""
    num_trials: int
    """Compared trials that had it, or a value nearer to it than to the best config's."""
    like: int | None = None
    """The number of the trial whose whole config stands for a choice that opens other parameters: the best with that
    choice. Null: the best config with this one value changed."""
    objective: RelativeChange | None = None
    """Null: too few trials to tell, or none completed with a choice that opens other parameters."""
    basis: Basis | None = None
    """The basis on which `objective` is known; null like it."""
    step_seconds: RelativeChange | None = None
    """The relative change of the time of a training step, as trials on the devices of the best one measured it. Null:
    too few did on either side of the value."""
    step_operations: float = 0.0
    """The change of the optimizer's matrix products and decompositions in a mean step, as `shampoo.cost` predicts it
    from the model's shapes: a share of those with the best config."""
    state_bytes: int = 0
    """The bytes of the optimizer's whole state with this value, from the model's shapes."""
    best_state_bytes: int = 0
    """The bytes of the optimizer's whole state with the best config."""

    @property
    def state(self) -> float:
        """The change of the state, as a share."""
        return self.state_bytes / self.best_state_bytes - 1 if self.best_state_bytes else 0.0
