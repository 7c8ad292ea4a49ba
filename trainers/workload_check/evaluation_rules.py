"""Rules on the validation metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from trainers.checkpoints import seed_random
from trainers.workload.description import LOOP_METRICS
from trainers.workload.protocol import CountsEvents
from trainers.workload_check.outcome import Broken, NotChecked
from trainers.workload_check.subject import WORLD_SIZES, Subject, is_sum_and_weight

SHARED_TOLERANCE = 1e-5
"""Relative; sums of float32 in another order."""
REPEATED_TOLERANCE = 1e-6
"""Relative; some operations add up in an order that varies from call to call."""


def check_metrics(subject: Subject) -> str:
    """`evaluate` gives the declared metrics on every rank, as finite sums with weights."""
    declared = subject.checked_description.metrics.keys() - LOOP_METRICS.keys() - _counted(subject)
    model = subject.model()
    alone: Mapping[str, tuple[float, float]] = {}
    for world_size in WORLD_SIZES:
        weights: dict[str, float] = dict.fromkeys(declared, 0.0)
        for rank in range(world_size):
            who = f"rank {rank} of {world_size}"
            share = _evaluate(subject, model, rank, world_size)
            alone = share if world_size == 1 else alone
            _check_names(share, declared, who)
            for name, value in share.items():
                if not is_sum_and_weight(value):
                    raise Broken(
                        f"metric {name!r} of {who} is {value!r:.80}", "Give (weighted sum, weight), both as numbers"
                    )
                total, weight = value
                if not math.isfinite(total) or not math.isfinite(weight) or weight < 0:
                    raise Broken(
                        f"metric {name!r} of {who} is ({total}, {weight})",
                        "Sum and weight must be finite, and the weight, e.g. a number of examples, not negative",
                    )
                weights[name] += weight
        empty = sorted(name for name, weight in weights.items() if weight <= 0)
        if empty:
            raise Broken(f"the weight of {', '.join(empty)} is 0 over all ranks", "Is the validation set empty?")
    return ", ".join(f"{name} {total / weight:.4g}" for name, (total, weight) in sorted(alone.items()))


def check_shares(subject: Subject) -> str:
    """The sums over 2 and over 3 ranks are those of one rank."""
    model = subject.model()
    (alone,) = subject.metrics(model)
    for world_size in WORLD_SIZES[1:]:
        shares = subject.metrics(model, world_size=world_size)
        if any(share.keys() != alone.keys() for share in shares):
            raise NotChecked("ranks give different metrics")
        for name, expected in alone.items():
            for part, what in enumerate(("sum", "weight")):
                found = sum(share[name][part] for share in shares)
                if not math.isclose(found, expected[part], rel_tol=SHARED_TOLERANCE, abs_tol=1e-8):
                    raise Broken(
                        f"the {what} of {name} is {expected[part]:.8g} on one rank, {found:.8g} over {world_size}",
                        "Let each rank evaluate its own part, examples[rank::world_size], and give sums, not means. "
                        "What is no ratio of such sums, as AUC, rank 0 computes of all; others give (0.0, 0.0)",
                    )
    return "1, 2 and 3 ranks agree"


def check_repetition(subject: Subject) -> str:
    """A second evaluation gives the same values, whatever random numbers come."""
    model = subject.model()
    seed_random(21)
    (one,) = subject.metrics(model)
    seed_random(22)
    (other,) = subject.metrics(model)
    changed = sorted(
        name
        for name in one.keys() | other.keys()
        if not math.isclose(_value(one, name), _value(other, name), rel_tol=REPEATED_TOLERANCE, abs_tol=1e-9)
    )
    if changed:
        raise Broken(
            f"{', '.join(changed)} changes from one evaluation to the next",
            "Evaluate the same examples each time, without dropout or random augmentation",
        )
    return "twice the same"


def check_model_is_untouched(subject: Subject) -> str:
    """An evaluation leaves parameters and buffers as they are."""
    model = subject.model()
    before = {name: value.clone() for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    subject.metrics(model)
    after = model.state_dict()
    changed = sorted(name for name, value in before.items() if not torch.equal(value, after[name]))
    if changed or after.keys() - before.keys():
        what = ", ".join([*changed, *sorted(after.keys() - before.keys())][:5])
        raise Broken(f"an evaluation changes {what}", "Call the model as it is, without model.train() or updates")
    return "parameters and buffers stay as they are"


def _evaluate(
    subject: Subject, model: torch.nn.Module, rank: int, world_size: int
) -> Mapping[str, tuple[float, float]]:
    try:
        return subject.evaluate(model, rank=rank, world_size=world_size)
    except ValueError as error:
        if "process group has not been initialized" not in str(error):
            raise
        raise Broken(
            "evaluate communicates with other ranks",
            "Give this rank's (sum, weight) alone: the loop adds up the ranks. F1 is of that kind, too, with the sum "
            "2 * tp and the weight 2 * tp + fp + fn",
        ) from error
    except RuntimeError as error:  # torch has no class of its own for it
        if _passes_with_gradients(subject, model, rank, world_size):
            raise Broken("evaluate needs gradients", "The loop calls it without: drop backward()") from error
        raise


def _passes_with_gradients(subject: Subject, model: torch.nn.Module, rank: int, world_size: int) -> bool:
    evaluate = partial(subject.evaluate, model, rank=rank, world_size=world_size, with_gradients=True)
    try:
        subject.available(evaluate, "evaluate fails")
    except NotChecked:
        return False
    return True


def _counted(subject: Subject) -> set[str]:
    """The metrics that come from `counts`."""
    workload = subject.workload
    if not isinstance(workload, CountsEvents):
        return set()
    return set(subject.available(workload.counts, "counts fails"))


def _check_names(share: object, declared: set[str], who: str) -> None:
    if not isinstance(share, Mapping):
        raise Broken(f"evaluate gives a {type(share).__name__}", "Give {name: (weighted sum, weight)}")
    undeclared, absent = sorted(share.keys() - declared), sorted(declared - share.keys())
    if undeclared:
        raise Broken(
            f"{who} gives {', '.join(undeclared)}, which the description's metrics lack",
            "Add them there with their direction, unless the loop measures them",
        )
    if absent:
        raise Broken(
            f"{who} does not give {', '.join(absent)}, which the description promises",
            "Every rank gives every metric, with weight 0 if it has no examples",
        )


def _value(share: Mapping[str, tuple[float, float]], name: str) -> float:
    total, weight = share.get(name, (math.nan, 1.0))
    return total / weight if weight else math.nan
