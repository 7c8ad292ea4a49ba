"""The scaling rules: a tuned config moved from the model it was tuned for to another one, each change with its reason.

All rules are of ratios, target over source: width `w`, fan-in, depth `D`, batch `B`, examples of a whole training `E`.
The sources state a learning rate for each matrix, by its own fan-in. A config has one for all, which goes with the
geometric mean over the matrices: the logarithms of what each would have are averaged, and those whose inputs stay, as a
first layer's do, ask for none. `python -m tests.benchmarks.answers.transfer` measures how well that does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from search_spaces import Scalar
from search_spaces.optimizers import ARGUMENTS
from service.evidence.formats.family import grafting_of
from service.transfer.situation import Situation

PRECONDITIONERS = "Hyperparameter transfer for matrix preconditioners (arXiv:2512.05620), table 1 and public code"
SDE = "On the SDEs and scaling rules for adaptive gradient algorithms (arXiv:2205.10287)"
HORIZON = "Scaling optimal LR across token horizons (arXiv:2409.19913) for AdamW, as arXiv:2603.28743 for Muon"
LINEAR = "Accurate, large minibatch SGD (arXiv:1706.02677)"
SOAP = "SOAP (arXiv:2409.11321): batch size times refresh period is kept"
WARM_UP = "AlgoPerf's search spaces: the warm-up as a share of the steps"
DEPTH = "Tensor Programs VI (arXiv:2310.02244), depth-muP for Adam"
MEASURED = "measured (tests.benchmarks.answers.transfer_distance --widths)"
DERIVED = "derived from the spectral condition (arXiv:2310.17813): a step's spectral norm stays that of its layer"

MAX_BATCH_FACTOR = 4.0
"""Largest factor of the learning rate by the batch, up or down: beyond, the critical batch may be passed."""
HORIZON_EXPONENT = -0.32
"""Exponent of E, where steps have the length of Adam's: at equal batch, and so beside √B, which is for equally many
examples. Of the shipped workloads the digits, which overfit, have an optimum that falls faster, and `stdlib-gpt` one
that does not fall from 60 to 240 steps (`tests.benchmarks.training.starting_values`)."""
EIGENBASIS_EXPONENT = 0.75
"""Exponent of 1/fan-in, for steps in an eigenbasis of matrices that are one block. Sources say 0 there, as if a step
had as few large directions as the gradient; SOAP's best learning rates fall on each of three families, by what the
others say: `python -m tests.benchmarks.answers.transfer_distance --widths mlp convnet gpt --presets soap`."""
AVERAGE_RANGE = (1e-3, 0.2)
"""Range of 1 - beta after it went with the batch; a value that lay outside before may stay there."""
MIN_WARMUP_STEPS = 50
"""Fewest steps of warm-up of a shorter training, where the tuned one had as many; by judgement."""
MAX_WARMUP_FRACTION = 0.1
"""Share of a short training up to which it warms up longer, to have so many steps of it."""


class StepKind(StrEnum):
    """The kind of step length that an optimizer takes: what its learning rate goes with."""

    ADAM = "adam"
    """Elementwise: Adam's, and Shampoo's that is grafted on Adam, RMSprop or AdaGrad."""
    EIGENBASIS = "eigenbasis"
    """Adam's in the eigenbasis of blocks: SOAP, KL-Shampoo."""
    SPECTRAL = "spectral"
    """All singular values alike, scaled to the length of Adam's steps: Muon's, and LoRA-RITE's of each factor."""
    SGD = "sgd"
    """The gradient's: SGD's, and Shampoo's that is grafted on it."""
    NONE = "none"
    """Shampoo's own, not grafted."""


@dataclass(frozen=True, slots=True)
class TunedConfig:
    """A config as a trial has it, as far as rules move it."""

    optimizer: str
    arguments: Mapping[str, Any]
    """Arguments of the optimizer's constructor."""
    schedule: Mapping[str, Any]
    """Fields of the schedule."""

    @property
    def flat(self) -> dict[str, Scalar]:
        """The values by the names that search spaces have for them."""
        found: dict[str, Scalar] = {}
        for name, value in self.arguments.items():
            if isinstance(value, Sequence) and not isinstance(value, str):
                found.update({f"{name}[{index}]": element for index, element in enumerate(value)})
            else:
                found[name] = value
        return {**found, **{f"schedule.{name}": value for name, value in self.schedule.items()}}


@dataclass(frozen=True, slots=True)
class Change:
    """A value that differs from the one that was tuned."""

    name: str
    """Name of the parameter, e.g. `lr`, `betas[1]`, `schedule.warmup_fraction`."""
    before: float
    after: float
    reason: str
    """The rule with its ratio, for a person."""
    source: str
    """The paper that the rule is from, or follows from; why it was varied beside the rules; or the benchmark that
    measures what several models have together."""


def step_kind(optimizer: str, arguments: Mapping[str, Any]) -> StepKind:
    """The kind of step length that a config takes."""
    if optimizer == "shampoo":
        member = arguments.get("preconditioner", "shampoo")
        if member in ("soap", "kl"):
            return StepKind.EIGENBASIS
        if member == "spectral":
            return StepKind.SPECTRAL
        return {"sgd": StepKind.SGD, "none": StepKind.NONE}.get(grafting_of(arguments), StepKind.ADAM)
    return {
        "sgd": StepKind.SGD,
        "muon": StepKind.SPECTRAL,
        "soap-peer": StepKind.EIGENBASIS,
        "lora-rite": StepKind.SPECTRAL,
    }.get(optimizer, StepKind.ADAM)


def decays_weights(config: TunedConfig) -> bool:
    """True if the config takes a share off the weights in each step, and does not penalise the loss, of which no source
    says how a penalty moves."""
    kind = config.arguments.get("weight_decay_type")
    if not with_defaults(config).get("weight_decay") or kind == "l2":
        return False
    return kind == "independent" or step_kind(config.optimizer, config.arguments) is not StepKind.SGD


def moved(config: TunedConfig, source: Situation, target: Situation) -> tuple[TunedConfig, list[Change]]:
    """The config for the target, and what changed. Where nothing differs, it is the same, with its learning rate."""
    mover = _Mover(config, source, target)
    mover.move_lr()
    mover.move_weight_decay()
    mover.move_averages()
    mover.move_refresh()
    mover.move_warm_up()
    mover.move_epsilon()
    return TunedConfig(config.optimizer, mover.named_arguments, mover.schedule), mover.changes


def _left_to_defaults(config: TunedConfig) -> dict[str, Any]:
    """The arguments that rules move and a config does not name, as the optimizer has them."""
    found: dict[str, Any] = {}
    for name in ("lr", "betas", "weight_decay", "epsilon"):
        argument = ARGUMENTS[config.optimizer].get(name)
        if argument is not None and argument.default is not None and name not in config.arguments:
            found[name] = list(argument.default) if isinstance(argument.default, tuple) else argument.default
    return found


def with_defaults(config: TunedConfig) -> dict[str, Any]:
    """The arguments of a config, with those that rules move as the optimizer has them where it does not name them."""
    return {**_left_to_defaults(config), **config.arguments}


def _rate_in_eigenbasis(fan_in: float, block: int) -> float:
    """The learning rate up to a factor; beyond a block as Adam's goes."""
    return float(min(fan_in, block) ** (1 - EIGENBASIS_EXPONENT) / fan_in)


class _Mover:
    """The config as far as it is moved, and the changes so far."""

    def __init__(self, config: TunedConfig, source: Situation, target: Situation) -> None:
        self._defaults = _left_to_defaults(config)
        self.arguments: dict[str, Any] = with_defaults(config)
        self._decays_weights = decays_weights(config)
        self.schedule: dict[str, Any] = dict(config.schedule)
        self.changes: list[Change] = []
        self._kind = step_kind(config.optimizer, config.arguments)
        self._source, self._target = source, target
        self._fan_in = target.features.fan_in / source.features.fan_in
        self._depth = target.features.depth / source.features.depth
        self._batch = target.batch_size / source.batch_size
        self._examples = self._batch * target.num_steps / source.num_steps
        self._batch_factor = 1.0
        """Of the learning rate."""
        self._lr_factor = 1.0
        """By width, depth and batch."""

    @property
    def named_arguments(self) -> dict[str, Any]:
        """The arguments without those that the config left to a default, and that stay there, but for `lr`."""
        return {
            name: value
            for name, value in self.arguments.items()
            if name == "lr" or name not in self._defaults or value != self._defaults[name]
        }

    def move_lr(self) -> None:
        of_shape, rule, source = self._shape_factor()
        of_batch = math.sqrt(self._batch) if self._kind is not StepKind.SGD else self._batch
        of_batch = min(max(of_batch, 1 / MAX_BATCH_FACTOR), MAX_BATCH_FACTOR)
        self._batch_factor = of_batch
        self._lr_factor = of_shape * of_batch
        reasons, sources = [], []
        if not math.isclose(of_shape, 1.0):
            reasons.append(f"{rule}: × {of_shape:.3g}")
            sources.append(source)
        if not math.isclose(of_batch, 1.0):
            exponent = "B" if self._kind is StepKind.SGD else "√B"
            reasons.append(f"{exponent}, by at most {MAX_BATCH_FACTOR:g}, B × {self._batch:.3g}: × {of_batch:.3g}")
            sources.append(LINEAR if self._kind is StepKind.SGD else SDE)
        of_length = 1.0 if self._kind in (StepKind.SGD, StepKind.NONE) else self._examples**HORIZON_EXPONENT
        if not math.isclose(of_length, 1.0):
            reasons.append(f"E^{HORIZON_EXPONENT:g}, examples of a training × {self._examples:.3g}: × {of_length:.3g}")
            sources.append(HORIZON)
        after = self.arguments["lr"] * self._lr_factor * of_length
        self._set_argument("lr", after, "; ".join(reasons), "; ".join(sources))

    def _shape_factor(self) -> tuple[float, str, str]:
        """The learning rate's factor by width and depth, its rule and where that stands."""
        fan_in, depth = self._fan_in, self._depth
        block = int(self.arguments.get("max_preconditioner_dim", self.arguments.get("max_precondition_dim", 1024)))
        match self._kind:
            case StepKind.ADAM:
                by_depth, rule, source = self._depth_of_adam()
                return by_depth / fan_in, f"1/fan-in, fan-in × {fan_in:.3g}{rule}", f"{PRECONDITIONERS}{source}"
            case StepKind.SPECTRAL:
                by_depth, rule, source = self._depth_of_adam()
                told = f"1/√fan-in for steps scaled to Adam's length, fan-in × {fan_in:.3g}{rule}"
                return by_depth / math.sqrt(fan_in), told, f"{DERIVED}{source}"
            case StepKind.EIGENBASIS:
                by_depth, rule, source = self._depth_of_adam()
                before, after = (_rate_in_eigenbasis(one.features.fan_in, block) for one in self._sides)
                told = f"fan-in^-{EIGENBASIS_EXPONENT:g}, and 1/fan-in beyond blocks of {block}"
                reason = f"{told}, fan-in × {fan_in:.3g}{rule}"
                return by_depth * after / before, reason, f"{MEASURED}; {PRECONDITIONERS}{source}"
            case StepKind.SGD:
                return depth, f"depth, × {depth:.3g}", PRECONDITIONERS
            case StepKind.NONE:
                factors = 2 * float(self.arguments.get("exponent_override") or 0.25)
                before, after = (math.ceil(one.features.width / block) ** 2 for one in self._sides)
                factor = depth ** (1 - 2 * factors) * (before / after) ** factors
                return factor, f"depth^(1-2e)/blocks^e, e = {factors:g}", PRECONDITIONERS

    def _depth_of_adam(self) -> tuple[float, str, str]:
        """The factor by depth of all that take steps of Adam's length.

        Where branches are scaled by 1/depth there is none (arXiv:2512.05620), in a plain stack of layers it is 1/depth
        (modular norm, arXiv:2405.14813), and a model's parameters do not tell which it is. This lies between the two;
        no other exponent holds on families that it was not chosen on (`tests.benchmarks.answers.transfer_distance`).
        It suits a language model with residual branches, and plain layers fall by anything between none and 1/depth²
        (`transfer_depth` there), so the interval is wide instead (`ranking.DEPTH_SPREAD`).
        """
        if math.isclose(self._depth, 1.0):
            return 1.0, "", ""
        return self._depth**-0.5, f", 1/√depth, depth × {self._depth:.3g}", f"; {DEPTH}"

    @property
    def _sides(self) -> tuple[Situation, Situation]:
        return self._source, self._target

    def move_weight_decay(self) -> None:
        """Moves the part that a step takes off the weights, lr times decay where it is decoupled, with 1/fan-in.

        By depth, batch size and the length of the training it goes as the learning rate does: sources that move the
        decay, too, disagree, deep members of the shipped table whose decay matters ended higher with more of it, and
        the one with a larger batch has the decay of the one that sees as many examples in smaller ones.
        """
        if not self._decays_weights:
            return
        is_independent = self.arguments.get("weight_decay_type") == "independent"
        by_depth, rule, _ = (1.0, "", "") if self._kind in (StepKind.SGD, StepKind.NONE) else self._depth_of_adam()
        of_step = by_depth * self._batch_factor / self._fan_in
        factor = of_step / (1.0 if is_independent else self._lr_factor)
        self._set_argument(
            "weight_decay",
            self.arguments["weight_decay"] * factor,
            f"lr × weight_decay goes with 1/fan-in, by the batch as lr{rule}: × {factor:.3g}",
            PRECONDITIONERS,
        )

    def move_averages(self) -> None:
        """Keeps the half-life of each average in examples; classic momentum stays."""
        reason = f"1 - beta goes with B, × {self._batch:.3g}"
        betas = self.arguments.get("betas")
        if betas is not None:
            moved_betas = [self._averaged(float(beta)) for beta in betas]
            for index, (before, after) in enumerate(zip(betas, moved_betas, strict=True)):
                self._note(f"betas[{index}]", before, after, reason, SDE)
            self.arguments["betas"] = moved_betas
        for name in ("shampoo_beta", "grafting_beta2", "beta3"):
            if self.arguments.get(name):
                self._set_argument(name, self._averaged(float(self.arguments[name])), reason, SDE)

    def _averaged(self, beta: float) -> float:
        if beta in (0.0, 1.0) or math.isclose(self._batch, 1.0):
            return beta  # no average, or a plain sum
        low, high = min(AVERAGE_RANGE[0], 1 - beta), max(AVERAGE_RANGE[1], 1 - beta)
        return round(1 - min(max((1 - beta) * self._batch, low), high), 12)

    def move_refresh(self) -> None:
        for name in ("precondition_frequency", "statistics_frequency"):
            before = self.arguments.get(name)
            if before is None:
                continue
            after = max(1, round(before / self._batch))
            reason = f"refresh period × B is kept, B × {self._batch:.3g}; at least 1"
            self._note(name, before, after, reason, SOAP)
            self.arguments[name] = after

    def move_warm_up(self) -> None:
        """Keeps its share of the steps; a shorter training has at least 50 steps of it, up to a tenth of all."""
        before = self.schedule.get("warmup_fraction")
        if before is None or self._target.num_steps >= self._source.num_steps:
            return
        least = min(MIN_WARMUP_STEPS / self._target.num_steps, MAX_WARMUP_FRACTION)
        kept = min(before * self._source.num_steps, MIN_WARMUP_STEPS) / self._target.num_steps
        after = max(before, float(format(min(least, kept), ".4g")))
        self._note(
            "schedule.warmup_fraction", before, after, "keeps up to 50 steps, in a tenth of the training", WARM_UP
        )
        self.schedule["warmup_fraction"] = after

    def move_epsilon(self) -> None:
        """Moves an absolute epsilon with the square of the gradient's norm; a share of the largest eigenvalue stays."""
        if self.arguments.get("epsilon_type") != "absolute":
            return
        factor = 1 / (self._depth**2 * self._batch)
        reason = f"an absolute epsilon goes with 1/(D²·B): × {factor:.3g}"
        self._set_argument("epsilon", self.arguments["epsilon"] * factor, reason, PRECONDITIONERS)

    def _set_argument(self, name: str, after: float, reason: str, source: str) -> None:
        before = self.arguments[name]
        if math.isclose(before, after):
            return
        after = float(format(after, ".4g"))
        self._note(name, before, after, reason, source)
        self.arguments[name] = after

    def _note(self, name: str, before: float, after: float, reason: str, source: str) -> None:
        if not math.isclose(before, after):
            self.changes.append(Change(name, before, after, reason, source))
