"""Configs for `torch.optim.Muon`, with `torch.optim.AdamW` for what it does not take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.optimizers import ARGUMENTS
from service.evidence.formats.constructor import Constructor, look_ahead, low_precision, of_adamw, several
from service.evidence.formats.family import Family

_IMPORTS = ["from torch.optim import AdamW, Muon"]
_TWO_SIDES = [
    "# Kernels of convolutions have more than two sides, which Muon does not take: AdamW does.",
    'vectors += [{**group, "params": [p for p in group["params"] if p.ndim != 2]} for group in matrices]',
    'matrices = [{**group, "params": [p for p in group["params"] if p.ndim == 2]} for group in matrices]',
    'matrices, vectors = ([group for group in groups if group["params"]] for groups in (matrices, vectors))',
]


def torch_muon(f: Family) -> Constructor | str:
    """The calls; a sentence why there are none for a member of the family that is not Muon."""
    if f.member != "spectral":
        return f"torch.optim.Muon orthogonalises the momentum: it has nothing of preconditioner={f.member!r}"
    found = [
        "kernels of convolutions: here they are orthogonalised as matrices, there AdamW steps for them",
        f"sides longer than {f.max_preconditioner_dim}: here they are cut, there they stay whole",
    ]
    if f.product_dtype == "float32":
        found.append("product_dtype='float32': there the polynomial is always in bfloat16")
    found += momentum_unsaid(f, is_muon_of="there")
    muon = {
        "lr": f.lr,
        "momentum": f.betas[0],
        "nesterov": is_nesterov(f),
        "weight_decay": f.weight_decay,
        "adjust_lr_fn": f.adjust_lr_fn,
    }
    lines = [*_TWO_SIDES, *several([("Muon", "matrices", muon), ("AdamW", "vectors", adamw_of(f))])]
    precision = low_precision(f, of_products=False)
    return Constructor(
        imports=_IMPORTS, lines=lines, makes_several=True, cannot_say=[*found, *look_ahead(f), *of_adamw(f), *precision]
    )


def muon_with_adamw(config: Mapping[str, Any]) -> Constructor:
    """The same two optimizers as `trainers.peers.muon` makes, of the keyword arguments for that."""
    given = {name: config.get(name, argument.default) for name, argument in ARGUMENTS["muon"].items()}
    muon = {name: given[name] for name in ("lr", "momentum", "nesterov", "ns_steps", "adjust_lr_fn", "weight_decay")}
    adamw = {
        "lr": given["lr"] * given["adamw_lr_ratio"],
        "betas": tuple(given["betas"]),
        "eps": given["eps"],
        "weight_decay": given["weight_decay"],
    }
    lines = several([("Muon", "matrices", muon), ("AdamW", "vectors", adamw)])
    return Constructor(imports=_IMPORTS, lines=[*_TWO_SIDES, *lines], makes_several=True)


def is_nesterov(f: Family) -> bool:
    """True if the look ahead is Muon's: its average is of β1, and the direction has β1² of the old average."""
    return abs(f.beta3 - f.betas[0] ** 2) < 1e-12 and f.betas[0] > 0


def momentum_unsaid(f: Family, *, is_muon_of: str) -> list[str]:
    """Settings that Muon's momentum cannot say: it is an average, with the look ahead of β1², or none."""
    found = []
    if not is_nesterov(f) and f.beta3 != f.betas[0]:
        found.append(f"beta3={f.beta3!r}: {is_muon_of} the look ahead is betas[0]², or none")
    if f.momentum > 0:
        found.append(f"momentum={f.momentum!r} of the orthogonalised steps: has no word there")
    return found


def adamw_of(f: Family) -> dict[str, Any]:
    """AdamW as it steps for the vectors of a member."""
    betas = (f.betas[0], f.adam_beta2)
    return {"lr": f.lr, "betas": betas, "eps": f.grafting_epsilon, "weight_decay": f.weight_decay}
