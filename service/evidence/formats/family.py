"""The hyperparameters of a Shampoo config with every default filled in, and sentences about those that another package
has no word for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from search_spaces.optimizers import ARGUMENTS

Member = Literal["shampoo", "soap", "kl", "spectral", "none"]

_REFRESH_PERIODS: Mapping[str, int] = {"shampoo": 50, "soap": 10, "kl": 10, "spectral": 1, "none": 1}
"""`shampoo.hyperparameters.DEFAULT_REFRESH_PERIOD`, which a test holds it against."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The hyperparameters of `shampoo.Shampoo` that say what a step is, none left to a default."""

    member: Member
    lr: float
    betas: tuple[float, float]
    beta3: float
    shampoo_beta: float
    epsilon: float
    epsilon_type: str
    weight_decay: float
    weight_decay_type: str
    momentum: float
    nesterov: bool
    solver: str
    """`eigh` where it is left to the device: all of them give the same root or basis, up to rounding, but qr's."""
    max_preconditioner_dim: int
    large_dim_method: str
    one_sided: bool
    period: int
    """Steps from one refresh to the next."""
    start: int
    """The step of the first refresh."""
    statistics_period: int
    stagger_refresh: bool
    refresh_tolerance: float
    grafting: str
    grafting_beta2: float
    grafting_epsilon: float
    exponent_override: float | None
    pseudo_inverse: bool
    use_bias_correction: bool
    adjust_lr_fn: str
    state_dtype: str
    product_dtype: str
    low_precision_weights: str
    max_failed_refreshes: int
    standardize_rows: bool
    matrix_norm: str
    rank: int | None
    rest_scale: float

    @property
    def plain_method(self) -> str:
        """The method that steps for vectors."""
        if self.grafting != "none":
            return self.grafting
        return "adagrad" if self.betas[1] == 1 else "adam"

    @property
    def adam_beta2(self) -> float:
        """β2 for an Adam that stands where the grafted or plain method is another: it cannot sum up."""
        return self.grafting_beta2 if self.grafting_beta2 < 1 else 0.999

    def without_word(self, *names: str) -> list[str]:
        """A sentence for each of these hyperparameters that is not at its default, and that a package lacks."""
        return [f"{name}={getattr(self, name)!r}: has no word there" for name in names if self._differs(name)]

    def _differs(self, name: str) -> bool:
        return bool(getattr(self, name) != ARGUMENTS["shampoo"][name].default)


def family_of(config: Mapping[str, Any]) -> Family:
    """The hyperparameters of the keyword arguments `config` of `shampoo.Shampoo`."""
    given = {name: config.get(name, argument.default) for name, argument in ARGUMENTS["shampoo"].items()}
    member = cast("Member", given["preconditioner"])
    betas = (float(given["betas"][0]), float(given["betas"][1]))
    period = _or(given["precondition_frequency"], _REFRESH_PERIODS[member])
    is_low_precision = given["state_dtype"] != "float32"
    statistics = period if is_low_precision and member != "kl" else _or(given["statistics_frequency"], 1)
    first_statistics = 1 if is_low_precision else statistics
    kept = (
        "lr epsilon epsilon_type weight_decay weight_decay_type momentum nesterov max_preconditioner_dim "
        "large_dim_method one_sided stagger_refresh refresh_tolerance grafting_epsilon exponent_override "
        "pseudo_inverse use_bias_correction adjust_lr_fn state_dtype product_dtype low_precision_weights "
        "max_failed_refreshes standardize_rows matrix_norm rank rest_scale"
    )
    return Family(
        member=member,
        betas=betas,
        beta3=_or(given["beta3"], betas[0]),
        shampoo_beta=_or(given["shampoo_beta"], betas[1]),
        solver=_or(given["solver"], "eigh"),
        period=period,
        start=_or(given["start_preconditioning_step"], first_statistics + (member == "soap")),
        statistics_period=statistics,
        grafting=grafting_of(config),
        grafting_beta2=_or(given["grafting_beta2"], betas[1]),
        **{name: given[name] for name in kept.split()},
    )


def grafting_of(config: Mapping[str, Any]) -> str:
    """The grafted method of the keyword arguments `config` of `shampoo.Shampoo`: `grafting` or its default."""
    by_default = "adam" if config.get("preconditioner", "shampoo") in ("shampoo", "none") else "none"
    return str(_or(config.get("grafting"), by_default))


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value
