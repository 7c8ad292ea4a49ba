"""Configs for `DistributedShampoo` of facebookresearch/optimizers, as of its commit f606606."""

from __future__ import annotations

from typing import Any

from service.evidence.formats.constructor import Constructor, Expression, blocks, call, low_precision, refreshes
from service.evidence.formats.family import Family

_MODULE = "distributed_shampoo"


def distributed_shampoo(f: Family) -> Constructor | str:
    """The constructor's call; a sentence why there is none if it has no such member of the family."""
    if f.member == "kl":
        return "its KL preconditioner has other exponents and another damping: no setting takes KL-Shampoo's steps"
    names = {"DistributedShampoo", "SingleDeviceDistributedConfig"}
    arguments: dict[str, Any] = {
        "lr": f.lr,
        "betas": f.betas,
        **({} if f.beta3 == f.betas[0] else {"beta3": f.beta3}),
        "epsilon": f.epsilon if f.member == "shampoo" else f.grafting_epsilon,
        "weight_decay": f.weight_decay,
    }
    if f.weight_decay > 0 and f.weight_decay_type != "decoupled":
        names.add("WeightDecayType")
        arguments["weight_decay_type"] = Expression(f"WeightDecayType.{f.weight_decay_type.upper()}")
    if f.momentum > 0:
        names.add("ClassicMomentumConfig")
        momentum = f"momentum={f.momentum!r}, dampening=0.0, use_nesterov={f.nesterov!r}"
        arguments["iterate_averaging_config"] = Expression(f"ClassicMomentumConfig({momentum})")
    arguments |= {"max_preconditioner_dim": f.max_preconditioner_dim, "use_bias_correction": f.use_bias_correction}
    graft = _graft(f.grafting, f, names)
    plain = _graft(f.plain_method, f, names)
    if f.member in ("shampoo", "soap"):
        arguments |= {"precondition_frequency": f.period, "start_preconditioning_step": max(f.start, f.period)}
    # 2: a matrix stays one; by default a small one becomes a vector, with one factor over all its entries.
    arguments["distributed_config"] = Expression("SingleDeviceDistributedConfig(target_parameter_dimensionality=2)")
    arguments |= {"grafting_config": graft, "preconditioner_config": _preconditioner(f, names)}
    if f.member == "shampoo" and f.pseudo_inverse:
        arguments["epsilon"] = 0.0
    if f.member == "none":
        arguments |= {
            "start_preconditioning_step": Expression("math.inf"),
            "preconditioner_config": Expression(_root(f, names)),
        }
    lines = [
        "# Until its start the grafted method steps alone: so vectors are left without a matrix.",
        f'plain = {{"start_preconditioning_step": math.inf, "grafting_config": {plain.text}}}',
        *call("optimizer = DistributedShampoo", "[*matrices, *({**group, **plain} for group in vectors)]", arguments),
    ]
    imports = ["import math", f"from {_MODULE} import (", *(f"    {name}," for name in sorted(names)), ")"]
    return Constructor(imports=imports, lines=lines, cannot_say=_unsaid(f))


def _graft(method: str, f: Family, names: set[str]) -> Expression:
    if method == "none":
        return Expression("None")
    title = {"sgd": "SGD", "adagrad": "AdaGrad", "rmsprop": "RMSprop", "adam": "Adam"}[method]
    names.add(f"{title}PreconditionerConfig")
    beta2 = f"beta2={f.grafting_beta2!r}, " if method in ("rmsprop", "adam") else ""
    arguments = "" if method == "sgd" else f"{beta2}epsilon={f.grafting_epsilon!r}"
    return Expression(f"{title}PreconditionerConfig({arguments})")


def _preconditioner(f: Family, names: set[str]) -> Expression:
    if f.member == "soap":
        solver = "EighEigendecompositionConfig"
        if f.solver in ("qr", "cholesky_qr"):
            solver = "QREigendecompositionConfig"
        names |= {"EigenvalueCorrectedShampooPreconditionerConfig", solver}
        return Expression(f"EigenvalueCorrectedShampooPreconditionerConfig(amortized_computation_config={solver}())")
    if f.member == "spectral":
        names |= {"SpectralDescentPreconditionerConfig", "NewtonSchulzOrthogonalizationConfig"}
        scale = {
            "match_rms_adamw": "0.2 * math.sqrt(max(d_in, d_out))",
            "original": "math.sqrt(max(1.0, d_out / d_in))",
        }[f.adjust_lr_fn]
        orthogonalization = f"NewtonSchulzOrthogonalizationConfig(scale_by_dims_fn=lambda d_in, d_out: {scale})"
        return Expression(f"SpectralDescentPreconditionerConfig(orthogonalization_config={orthogonalization})")
    return Expression(_root(f, names))


def _root(f: Family, names: set[str]) -> str:
    names.add("RootInvShampooPreconditionerConfig")
    parts = []
    if f.pseudo_inverse:
        names |= {"EigenConfig", "PseudoInverseConfig"}
        kind = "rank_rtol" if f.epsilon_type == "relative" else "rank_atol"
        stability = f"PseudoInverseConfig({kind}={f.epsilon!r})"
        parts.append(f"amortized_computation_config=EigenConfig(rank_deficient_stability_config={stability})")
    elif f.epsilon_type == "relative" and f.member == "shampoo":
        # In units of the trace: what is nearest to units of the largest eigenvalue, and as free of the scale.
        parts.append("use_trace_scaling=True, trace_scaling_exponent=1.0")
    if f.exponent_override is not None:
        exponents = ", ".join(f"{order}: {f.exponent_override!r}" for order in (2, 3, 4))
        parts.append(f"inverse_exponent_override={{{exponents}}}")
    parts.append(f"num_tolerated_failed_amortized_computations={f.max_failed_refreshes!r}")
    return f"RootInvShampooPreconditionerConfig({', '.join(parts)})"


def _unsaid(f: Family) -> list[str]:
    found = []
    if f.member == "shampoo":
        if f.epsilon_type == "relative" and not f.pseudo_inverse:
            found.append(
                f"epsilon={f.epsilon!r} in units of a factor's largest eigenvalue: there it is in units of its trace, "
                "1 to as many times as large as the factor has rows"
            )
            if f.grafting == "none":
                found.append("the length of a step: without grafting it changes with the unit of epsilon")
        if f.solver in ("qr", "cholesky_qr"):
            found.append(f"solver={f.solver!r}: there it is an eigendecomposition, of which that is an approximation")
        found += f.without_word("refresh_tolerance")
    if f.member == "soap":
        found.append(
            "the squared gradients do not follow a change of the basis there: until they have forgotten the old one, "
            "steps after a refresh differ"
        )
        if f.shampoo_beta != f.betas[1]:
            found.append(f"shampoo_beta={f.shampoo_beta!r}: the factors are averaged with betas[1] there")
        found += f.without_word("refresh_tolerance")
    if f.member == "spectral":
        found += blocks(f, "pieces of it, and the last is what remains")
        found += f.without_word("large_dim_method")
    if f.member in ("shampoo", "soap"):
        found += refreshes(f, first=max(f.start, f.period), is_due_at=0)
        found += blocks(f, "pieces of it, and the last is what remains")
        if f.statistics_period != 1:
            found.append(f"statistics of every {f.statistics_period} steps: there every step updates the factors")
        found += f.without_word("large_dim_method", "one_sided")
    if f.momentum > 0 and f.weight_decay > 0 and f.weight_decay_type != "l2":
        found.append("weight decay beside the momentum: there it is part of what the momentum collects")
    if not f.use_bias_correction and f.grafting == "none" and f.plain_method == "adam":
        found.append("use_bias_correction=False of vectors: there their squared gradients are always corrected")
    return [*found, *low_precision(f)]
