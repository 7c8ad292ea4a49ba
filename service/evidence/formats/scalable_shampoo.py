"""Configs for `distributed_shampoo` of google-research/scalable_shampoo, a gradient transformation of optax."""

from __future__ import annotations

from typing import Any

from service.evidence.formats.constructor import Constructor, Expression, blocks, literal, low_precision, refreshes
from service.evidence.formats.family import Family


def scalable_shampoo(f: Family) -> Constructor | str:
    """The call, for a learning rate that is a function `learning_rate` of the step, from 0; a sentence why there is
    none for a member that it lacks."""
    if f.member != "shampoo":
        return f"scalable_shampoo has nothing of preconditioner={f.member!r}"
    graft = {"none": "NONE", "sgd": "SGD", "adagrad": "ADAGRAD"}.get(f.grafting, "RMSPROP")
    is_decoupled = f.weight_decay > 0 and f.weight_decay_type == "decoupled"
    arguments: dict[str, Any] = {
        "learning_rate": Expression("learning_rate"),
        "block_size": f.max_preconditioner_dim,
        "beta1": f.momentum,
        "beta2": f.betas[1],
        "diagonal_epsilon": f.grafting_epsilon,
        "matrix_epsilon": f.epsilon,
        "relative_matrix_epsilon": f.epsilon_type == "relative",
        "weight_decay": f.weight_decay if is_decoupled else 0.0,
        # Else it multiplies the decay by the learning rate twice.
        "decoupled_weight_decay": is_decoupled,
        "decoupled_learning_rate": not is_decoupled,
        "start_preconditioning_step": f.start - 1,  # it counts from 0
        "preconditioning_compute_steps": f.period,
        "statistics_compute_steps": f.statistics_period,
        "graft_type": Expression(f"GraftingType.{graft}"),
        "nesterov": f.nesterov,
        "exponent_override": 0 if f.exponent_override is None else round(1 / f.exponent_override),
        "moving_average_for_momentum": False,
        "best_effort_shape_interpretation": False,
        "skip_preconditioning_rank_lt": 2,
        "skip_preconditioning_dim_size_gt": 2**31 - 1,
    }
    lines = [
        "optimizer = distributed_shampoo(",
        *(f"    {name}={literal(value)}," for name, value in arguments.items()),
        ")",
    ]
    module = "scalable_shampoo.optax.distributed_shampoo"
    return Constructor(
        imports=[f"from {module} import GraftingType, distributed_shampoo"], lines=lines, cannot_say=_unsaid(f)
    )


def _unsaid(f: Family) -> list[str]:
    found = ["the factors begin at epsilon times the identity there, and at 0 here"]
    if f.betas[0] > 0:
        found.append(
            f"betas[0]={f.betas[0]!r}: the gradient is not averaged before it is preconditioned there; its momentum, "
            "beta1, is of the steps"
        )
    if f.grafting == "adam":
        found.append("grafting='adam': there it is RMSprop's, which corrects no bias")
    if f.grafting_beta2 != f.betas[1] and f.grafting in ("adam", "rmsprop"):
        found.append(f"grafting_beta2={f.grafting_beta2!r}: there it is beta2, that of the factors")
    if f.epsilon_type == "absolute" and f.use_bias_correction and f.betas[1] < 1:
        found.append("the bias correction of the factors, beside which epsilon weighs less in the first steps")
    if f.grafting == "none" and f.use_bias_correction:
        found.append("the bias correction, which without grafting changes the length of the first steps")
    if f.exponent_override is not None and abs(round(1 / f.exponent_override) * f.exponent_override - 1) > 1e-9:
        found.append(f"exponent_override={f.exponent_override!r}: there it is one over an integer")
    if f.weight_decay > 0 and f.weight_decay_type != "decoupled":
        found.append(f"weight_decay_type={f.weight_decay_type!r}: has no word there, and the decay is left out")
    if f.weight_decay > 0 and f.weight_decay_type == "decoupled" and f.momentum > 0:
        found.append("a learning rate that changes beside momentum: there the momentum collects steps of the old one")
    if f.statistics_period != 1:
        found.append(f"statistics of every {f.statistics_period} steps: there the first are those of step 1")
    found += refreshes(f, first=f.start, is_due_at=1)
    found += blocks(
        f, "pieces of it, and the last is what remains, and a parameter has one length of step for all of them"
    )
    found += f.without_word("pseudo_inverse", "one_sided", "large_dim_method", "refresh_tolerance")
    return [*found, *low_precision(f)]
