"""Configs for the package heavyball, as of its release 3.2: SOAP and Muon."""

from __future__ import annotations

from service.evidence.formats.constructor import Constructor, call, several
from service.evidence.formats.family import Family
from service.evidence.formats.muon import adamw_of, is_nesterov
from service.evidence.formats.pytorch_optimizer import soap_unsaid
from service.evidence.formats.unsaid import look_ahead, low_precision, of_adamw

_CLAMPS = (
    "grafting_epsilon: there it is the least that the root of the squared gradients counts as, and not added to it"
)


def heavyball(f: Family) -> Constructor | str:
    """The calls; a sentence why there are none for a member that the package lacks, or takes otherwise."""
    if f.member == "soap":
        return _soap(f)
    if f.member == "spectral":
        return _muon(f)
    return {
        "shampoo": "the package has no Shampoo with inverse roots and grafting",
        "kl": "its KLShampoo balances its factors and damps them otherwise: no setting takes the same steps",
        "none": "torch.optim has what preconditioner='none' is",
    }[f.member]


def _soap(f: Family) -> Constructor:
    arguments = {
        "lr": f.lr,
        "betas": f.betas,
        "shampoo_beta": f.shampoo_beta,
        "eps": f.grafting_epsilon,
        "weight_decay": f.weight_decay,
        "precondition_frequency": f.period,
        "max_precond_dim": f.max_preconditioner_dim,
        "merge_dims": True,
        "split": True,
        "precondition_1d": False,
    }
    found = [
        "the first step: it moves nothing there, and its gradient alone makes the first basis",
        "the squared gradients do not follow a change of the basis there",
        _CLAMPS,
        f"sides longer than {f.max_preconditioner_dim} and kernels of convolutions: they are cut and merged otherwise",
        *([] if f.use_bias_correction else ["use_bias_correction=False: averages are always corrected there"]),
        *soap_unsaid(f),
    ]
    lines = call("optimizer = heavyball.SOAP", "[*matrices, *vectors]", arguments)
    return Constructor(imports=["import heavyball"], lines=lines, cannot_say=found)


def _muon(f: Family) -> Constructor:
    found = [
        "the polynomial: it has other coefficients there, in bfloat16, so that steps have the same direction up to its "
        "error, about a fifth of their length",
        f"sides longer than {f.max_preconditioner_dim}: here they are cut, there they stay whole",
    ]
    if f.adjust_lr_fn == "match_rms_adamw":
        found.append(
            "adjust_lr_fn='match_rms_adamw', 0.2·√max(m, n): there a step has √max(1, m/n) times the learning rate"
        )
    if is_nesterov(f):
        found.append(
            "beta3=betas[0]²: here the gradient and the old average weigh 1 - betas[0]² to betas[0]², there "
            "2 - betas[0] to betas[0]"
        )
    elif f.beta3 != f.betas[0]:
        found.append(f"beta3={f.beta3!r}: has no word there")
    if f.momentum > 0:
        found.append(f"momentum={f.momentum!r} of the orthogonalised steps: has no word there")
    muon = {"lr": f.lr, "betas": f.betas, "weight_decay": f.weight_decay, "nesterov": is_nesterov(f)}
    return Constructor(
        imports=["import heavyball", "from torch.optim import AdamW"],
        lines=several([("heavyball.Muon", "matrices", muon), ("AdamW", "vectors", adamw_of(f))]),
        makes_several=True,
        cannot_say=[*found, *look_ahead(f), *of_adamw(f), *low_precision(f)],
    )
