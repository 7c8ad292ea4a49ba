"""Configs for the package heavyball, as of its release 3.2: SOAP and Muon."""

from __future__ import annotations

from service.evidence.formats.constructor import Constructor, call, look_ahead, low_precision, of_adamw, several
from service.evidence.formats.family import Family
from service.evidence.formats.muon import adamw_of, is_nesterov, momentum_unsaid
from service.evidence.formats.pytorch_optimizer import soap_unsaid

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
        f"sides longer than {f.max_preconditioner_dim}: here they are cut, there they stay whole; and kernels of "
        f"convolutions, whose sides are merged here as far as {f.max_preconditioner_dim} allows: there, all but the "
        "first are",
        *momentum_unsaid(f, is_muon_of="there"),
    ]
    muon = {"lr": f.lr, "betas": f.betas, "weight_decay": f.weight_decay, "nesterov": is_nesterov(f)}
    if is_nesterov(f):
        # Its other average has another look ahead: the gradient and the old average weigh 2 - β1 to β1.
        muon["heavyball_momentum"] = True
    return Constructor(
        imports=["import heavyball", "from torch.optim import AdamW"],
        lines=[*_lengths(f), *several([("heavyball.Muon", "matrices", muon), ("AdamW", "vectors", adamw_of(f))])],
        makes_several=True,
        cannot_say=[*found, *look_ahead(f), *of_adamw(f), *low_precision(f)],
    )


def _lengths(f: Family) -> list[str]:
    """Lines that give each matrix a learning rate with which its steps have our length."""
    if f.adjust_lr_fn == "original":
        return []
    # √max(1, m/n)·lr', the length there, is 0.2·√max(m, n)·lr for lr' = 0.2·√n·lr, whichever side is the longer.
    return [
        "# Each matrix gets 0.2·√columns times the learning rate, as Muon's steps are √max(1, rows/columns) long and",
        "# those that were measured 0.2·√max(rows, columns); the decay follows the learning rate, and stays as it was.",
        "matrices = [",
        "    {",
        "        **group,",
        '        "params": [p],',
        f'        "lr": group.get("lr", {f.lr!r}) * scale,',
        f'        "weight_decay": group.get("weight_decay", {f.weight_decay!r}) / scale,',
        "    }",
        "    for group in matrices",
        '    for p in group["params"]',
        "    for scale in [0.2 * (p.numel() / p.shape[0]) ** 0.5]",
        "]",
    ]
