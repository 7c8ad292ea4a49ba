"""Configs for the package pytorch_optimizer, as of its release 4.1: DASH, SOAP and Muon."""

from __future__ import annotations

from typing import Any

from service.evidence.formats.constructor import (
    Constructor,
    Expression,
    blocks,
    call,
    look_ahead,
    low_precision,
    of_adamw,
    refreshes,
    several,
)
from service.evidence.formats.family import Family
from service.evidence.formats.muon import adamw_of, is_nesterov, momentum_unsaid


def pytorch_optimizer(f: Family) -> Constructor | str:
    """The calls; a sentence why there are none for a member that the package lacks."""
    if f.member == "shampoo":
        return _dash(f)
    if f.member == "soap":
        return _soap(f)
    if f.member == "spectral":
        return _muon(f)
    return "the package has no KL-Shampoo" if f.member == "kl" else "torch.optim has what preconditioner='none' is"


def _dash(f: Family) -> Constructor:
    dash: dict[str, Any] = {
        "lr": f.lr,
        "betas": f.betas if f.betas[1] < 1 else (f.betas[0], 0.999),
        "grafting_beta": f.adam_beta2,
        "weight_decay": f.weight_decay,
        "block_size": f.max_preconditioner_dim,
        "precondition_frequency": f.period,
        "start_preconditioning_step": f.start,
        "inverse_root_method": "eigh",
        "momentum": f.momentum,
        "nesterov": f.nesterov,
        "correct_bias": True,
        "eps": f.grafting_epsilon,
        # It adds this once before and once after the eigendecomposition.
        "matrix_eps": f.epsilon / 2,
    }
    found = []
    if f.epsilon_type == "relative":
        found.append(
            f"epsilon={f.epsilon!r} in units of a factor's largest eigenvalue: there it is a number, right for "
            "eigenvalues around 1"
        )
    if f.betas[1] == 1:
        found.append("betas[1]=1, sums of statistics: there they are averages, with 0.999")
    elif f.use_bias_correction:
        found.append(
            "the bias correction of the factors: without it epsilon weighs more in the first 1/(1 - betas[1]) steps"
        )
    if not f.use_bias_correction and f.betas[0] > 0:
        found.append(
            "use_bias_correction=False of the averaged gradient: it is corrected there, as grafting sets lengths"
        )
    if f.grafting != "adam":
        found.append(f"grafting={f.grafting!r}: there it is always Adam's")
    if f.beta3 != f.betas[0]:
        found.append(f"beta3={f.beta3!r}: has no word there")
    if f.statistics_period != 1:
        found.append(f"statistics of every {f.statistics_period} steps: there every step updates the factors")
    if f.solver in ("qr", "cholesky_qr"):
        found.append(f"solver={f.solver!r}: there it is an eigendecomposition, of which that is an approximation")
    if f.momentum > 0:
        found.append("momentum of vectors: their AdamW has none there")
    found += refreshes(f, first=f.start, is_due_at=0)
    found += blocks(f, "pieces of it, and the last is what remains")
    found += f.without_word("exponent_override", "pseudo_inverse", "one_sided", "large_dim_method", "refresh_tolerance")
    lines = several([("DASH", "matrices", dash), ("AdamW", "vectors", adamw_of(f))])
    imports = ["from pytorch_optimizer import DASH", "from torch.optim import AdamW"]
    cannot_say = [*found, *of_adamw(f), *low_precision(f)]
    return Constructor(imports=imports, lines=lines, makes_several=True, cannot_say=cannot_say)


def _soap(f: Family) -> Constructor:
    arguments = {
        "lr": f.lr,
        "betas": f.betas,
        "shampoo_beta": f.shampoo_beta,
        "weight_decay": f.weight_decay,
        "precondition_frequency": f.period,
        "max_precondition_dim": f.max_preconditioner_dim,
        "eps": f.grafting_epsilon,
    }
    lines = call("optimizer = SOAP", "[*matrices, *vectors]", arguments)
    found = [
        "the first step: it moves nothing there, and its gradient alone makes the first basis",
        "the squared gradients are put in the new order there, and not turned into the new basis, at a refresh",
        f"sides longer than {f.max_preconditioner_dim}: here they are cut, there they have no factor; kernels of "
        "convolutions have a factor for each side",
        *soap_unsaid(f),
    ]
    if not f.use_bias_correction:
        lines = call("optimizer = SOAP", "[*matrices, *vectors]", {**arguments, "correct_bias": False})
    return Constructor(imports=["from pytorch_optimizer import SOAP"], lines=lines, cannot_say=found)


def soap_unsaid(f: Family) -> list[str]:
    """Settings that no SOAP of another package has."""
    found = []
    if f.solver not in ("qr", "cholesky_qr"):
        found.append("solver='eigh': there a refresh is one step of subspace iteration")
    if f.stagger_refresh and f.period > 1:
        found.append(f"stagger_refresh: all bases are refreshed together there, every {f.period} steps")
    if f.beta3 != f.betas[0]:
        found.append(f"beta3={f.beta3!r}: has no word there")
    if f.statistics_period != 1:
        found.append(f"statistics of every {f.statistics_period} steps: there every step updates the factors")
    if f.start != 2:
        found.append(f"start_preconditioning_step={f.start}: there it is the second step")
    if f.weight_decay > 0 and f.weight_decay_type != "decoupled":
        found.append(f"weight_decay_type={f.weight_decay_type!r}: there it is decoupled")
    found += f.without_word("momentum", "one_sided", "large_dim_method", "refresh_tolerance")
    return [*found, *low_precision(f)]


def _muon(f: Family) -> Constructor:
    arguments = {
        "momentum": f.betas[0],
        "nesterov": is_nesterov(f),
        "lr": f.lr,
        "weight_decay": f.weight_decay,
        "use_adjusted_lr": f.adjust_lr_fn == "match_rms_adamw",
        "adamw_lr": f.lr,
        "adamw_betas": (f.betas[0], f.adam_beta2),
        "adamw_wd": f.weight_decay,
        "adamw_eps": f.grafting_epsilon,
    }
    groups = Expression(
        '[*({**group, "use_muon": True} for group in matrices), *({**group, "use_muon": False} for group in vectors)]'
    )
    found = [f"sides longer than {f.max_preconditioner_dim}: here they are cut, there they stay whole"]
    if f.product_dtype == "float32":
        found.append("product_dtype='float32': there the polynomial is always in bfloat16")
    precision = low_precision(f, of_products=False)
    return Constructor(
        imports=["from pytorch_optimizer import Muon"],
        lines=call("optimizer = Muon", groups.text, arguments),
        cannot_say=[*found, *momentum_unsaid(f, is_muon_of="there"), *look_ahead(f), *of_adamw(f), *precision],
    )
