"""The arguments of each optimizer and the parts of a trial config that can be searched or fixed, with hard bounds.

The API checks a space with these tables, without importing torch; tests hold them against the constructors' signatures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from search_spaces.arguments import LARGEST_INTEGER, Argument
from search_spaces.shampoo_arguments import SHAMPOO, SHAMPOO_IN_FLIGHT

OptimizerName: TypeAlias = Literal["shampoo", "adamw", "sgd", "muon", "soap-peer", "lora-rite"]
OPTIMIZER_NAMES: tuple[str, ...] = get_args(OptimizerName)


def _positive(*, optional: bool = False) -> Argument:
    return Argument(kind="float", low=0.0, high=math.inf, open_low=True, optional=optional)


def _non_negative(default: float) -> Argument:
    return Argument(kind="float", low=0.0, default=default)


def _average() -> Argument:
    """The weight of the past in a moving average."""
    return Argument(kind="float", low=0.0, high=1.0, open_high=True)


def _integer(low: int) -> Argument:
    return Argument(kind="integer", low=low, high=LARGEST_INTEGER)


def _flag(default: bool) -> Argument:
    return Argument(kind="boolean", default=default)


def _choice(*choices: str) -> Argument:
    return Argument(kind="choice", choices=choices)


ADAMW: Mapping[str, Argument] = {
    "lr": _non_negative(1e-3),
    "betas": Argument(kind="pair", elements=(_average(), _average()), default=(0.9, 0.999)),
    "eps": _non_negative(1e-8),
    "weight_decay": _non_negative(1e-2),
    "amsgrad": _flag(False),
}
"""Arguments of `torch.optim.AdamW` that change what it computes."""

SGD: Mapping[str, Argument] = {
    "lr": _non_negative(1e-3),
    "momentum": _non_negative(0.0),
    "dampening": Argument(kind="float", low=0.0, high=1.0, default=0.0),
    "weight_decay": _non_negative(0.0),
    "nesterov": _flag(False),
}
"""Arguments of `torch.optim.SGD` that change what it computes."""

MUON: Mapping[str, Argument] = {
    "lr": _non_negative(1e-3),
    "momentum": Argument(kind="float", low=0.0, high=1.0, open_high=True, default=0.95),
    "nesterov": _flag(True),
    "ns_steps": Argument(kind="integer", low=1, high=99, default=5),
    "adjust_lr_fn": Argument(kind="choice", choices=("original", "match_rms_adamw"), default="match_rms_adamw"),
    "adamw_lr_ratio": _non_negative(1.0),
    "betas": Argument(kind="pair", elements=(_average(), _average()), default=(0.9, 0.95)),
    "eps": _non_negative(1e-8),
    "weight_decay": _non_negative(1e-2),
    "preconditioner": Argument(kind="choice", choices=("muon", "none"), default="muon"),
}
"""Arguments of `trainers.peers.muon.MuonWithAdamW`."""

SOAP_PEER: Mapping[str, Argument] = {
    "lr": _non_negative(3e-3),
    "betas": Argument(kind="pair", elements=(_average(), _average()), default=(0.95, 0.95)),
    "shampoo_beta": Argument(kind="float", low=0.0, high=1.0, open_high=True, optional=True),
    "weight_decay": _non_negative(1e-2),
    "precondition_frequency": Argument(kind="integer", low=1, high=LARGEST_INTEGER, default=10),
    "max_precondition_dim": Argument(kind="integer", low=1, high=LARGEST_INTEGER, default=10000),
    "merge_dims": _flag(False),
    "precondition_1d": _flag(False),
    "correct_bias": _flag(True),
    "normalize_gradient": _flag(False),
    "eps": _non_negative(1e-8),
}
"""Arguments of `trainers.peers.soap.peer_soap`."""

LORA_RITE: Mapping[str, Argument] = {
    "lr": _non_negative(1e-3),
    "betas": Argument(kind="pair", elements=(_average(), _average()), default=(0.9, 0.999)),
    "eps": Argument(kind="float", low=0.0, open_low=True, default=1e-6),
    "weight_decay": _non_negative(0.0),
    "clip_unmagnified_grad": Argument(kind="float", low=0.0, open_low=True, optional=True, default=1.0),
}
"""Arguments of `shampoo.LoraRite`."""

ARGUMENTS: Mapping[str, Mapping[str, Argument]] = {
    "shampoo": SHAMPOO,
    "adamw": ADAMW,
    "sgd": SGD,
    "muon": MUON,
    "soap-peer": SOAP_PEER,
    "lora-rite": LORA_RITE,
}

SCHEDULE: Mapping[str, Argument] = {
    "warmup_fraction": Argument(kind="float", low=0.0, high=1.0, open_high=True),
    "decay": _choice("cosine", "linear", "constant", "wsd"),
    "decay_fraction": Argument(kind="float", low=0.0, high=1.0, open_low=True),
    "horizon": _positive(),
}
"""Fields of a trial's schedule, named `schedule.<field>`."""

TRAINING: Mapping[str, Argument] = {
    "gradient_clip_norm": _positive(optional=True),
    "precision": _choice("float32", "bfloat16", "float16"),
    "batch_size": _integer(1),
}
"""Fields of the trial config itself, named `training.<field>`. Seed and length belong to the job: of a searched batch
size the steps follow."""

AVERAGING: Mapping[str, Argument] = {
    "method": _choice("ema", "lawa", "schedule_free", "primal"),
    "decay": _average(),
    "warm_up": _choice("bias_correction", "ramp", "none"),
    "update_frequency": _integer(1),
    "num_snapshots": _integer(1),
    "mu_x": _average(),
    "mu_y": Argument(kind="float", low=0.0, high=1.0, open_low=True),
    "lr_power": Argument(kind="float", low=0.0, high=math.inf),
    "weight_decay_at": _choice("y", "z"),
}
"""Arguments of `shampoo.WeightAveraging`, named `averaging.<argument>`."""

COMPRESSION: Mapping[str, Argument] = {
    "rank": _integer(1),
    "start_step": _integer(2),
    "error_feedback": Argument(kind="boolean"),
}
"""Fields of the gradient compression, named `compression.<field>`."""

SECTIONS: Mapping[str, Mapping[str, Argument]] = {
    "schedule": SCHEDULE,
    "training": TRAINING,
    "averaging": AVERAGING,
    "compression": COMPRESSION,
}
"""The parts of a trial config beside the optimizer's arguments and the workload's options."""

IN_FLIGHT: Mapping[str, frozenset[str]] = {
    "shampoo": SHAMPOO_IN_FLIGHT,
    "adamw": frozenset({"lr", "betas", "eps", "weight_decay"}),
    "sgd": frozenset({"lr", "momentum", "dampening", "weight_decay"}),
    "muon": frozenset({"lr", "momentum", "adamw_lr_ratio", "betas", "eps", "weight_decay"}),
    "soap-peer": frozenset({"lr", "eps", "weight_decay"}),  # its state keeps the averages' weights and the period
    "lora-rite": frozenset(LORA_RITE),
    "schedule": frozenset({"decay_fraction", "horizon"}),
    "training": frozenset({"gradient_clip_norm"}),
}
"""Numbers that may change between two steps of a training run, of each optimizer and section: what they weigh, scale or
time stays of the same kind and shape. They may not begin or cease to be 0, nor may an average begin or cease to be a
sum (1): that adds state or takes it away. Left out are those that count only at the beginning (the warm-up,
`start_preconditioning_step`), those that change no step (`max_failed_refreshes`), and a workload's options, which may
shape the model."""
