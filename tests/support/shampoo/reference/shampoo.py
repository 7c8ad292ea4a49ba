"""The specification of `shampoo.Shampoo`: a dense, slow textbook implementation in float64. This file holds what all
members share: geometry, schedule, weight decay; `members.py` and `spectral.py` what a block does in one step.

One tensor and one block at a time, no buckets, no scratch, nothing shared with the package. Settings are a plain
dict of the constructor's keyword arguments, all of them given. Per parameter, at its step t = 1, 2, ...:

    l2 decay        G ← G + λW
    direction       P = the member's, block by block; B ← μB + P;  P ← B, with Nesterov P + μB
    other decay     W ← (1 − lr·λ) W  (decoupled)   or   W ← (1 − λ·lr/peak_lr) W  (independent)
    step            W ← W − lr·P

Blocks. Sides of 1 are dropped and short sides merged (`merge`). What is then a vector, and everything for
preconditioner "none", takes plain steps element by element. Longer sides than `max_preconditioner_dim` are cut into
pieces, or by `large_dim_method` left whole with a diagonal factor or none (`side_kinds`).

Schedule. A unit is one factor of one block. With f = `precondition_frequency` and s = `start_preconditioning_step`,
by default the step of the first statistics and for soap the next one, all units are refreshed at step s, and at later
steps t unit u if

    (t − s) mod f = φ_u,   φ_u = ⌊f/n ⌊n·(c_1 + ... + c_{u−1} + c_u/2) / Σc⌋⌋

for units in storage order, whose cost c is d³ of a full factor, 0 of a diagonal one; without staggering φ = 0. With
m = Σc / max c to the nearest integer, n = min(f, ⌈m / 2⌈m/2f⌉⌉): an even number of the largest units at a time.
Storage order: blocks of equal shape lie together, shapes in the order in which they first appear; then by parameter,
by place, by side.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tests.support.shampoo.reference.members import Block, KlBlock, PlainBlock, ShampooBlock, SoapBlock
from tests.support.shampoo.reference.spectral import SpectralBlock

MEMBERS: dict[str, type[Block]] = {
    "shampoo": ShampooBlock,
    "soap": SoapBlock,
    "kl": KlBlock,
    "spectral": SpectralBlock,
}
# The longest a full factor's side may be, in multiples of the block's other sides together.
LONGEST_ASPECT = 32


def merge(shape: tuple[int, ...], longest: int) -> list[int]:
    """Drops sides of 1; merges the neighbours of smallest product while it is small, or one of them is, down to two."""
    sides = [d for d in shape if d > 1]
    if not sides:
        return [1]
    while len(sides) > 2:
        product, i = min((sides[i] * sides[i + 1], i) for i in range(len(sides) - 1))
        shorter = min(sides[i], sides[i + 1])
        if product <= longest or shorter <= math.isqrt(longest):
            sides = [*sides[:i], product, *sides[i + 2 :]]
        else:
            break
    return sides


def piece_lengths(length: int, longest: int) -> list[int]:
    """An exact division into few enough pieces, else pieces that differ by one."""
    fewest = -(-length // longest)
    exact = [c for c in range(fewest, 2 * fewest + 1) if length % c == 0]
    if exact:
        return [length // exact[0]] * exact[0]
    return [length // fewest + (1 if i < length % fewest else 0) for i in range(fewest)]


def side_kinds(block: Sequence[int], s: dict[str, Any]) -> list[str]:
    """The factor of each side of a block of order >= 2: "full", "diagonal" or "identity" (none)."""
    spare = "diagonal" if s["large_dim_method"] != "one_sided" and not s["one_sided"] else "identity"
    kinds = []
    for i, d in enumerate(block):
        others = math.prod(block) // d
        if s["one_sided"] and i != list(block).index(min(block)):
            kind = "identity"
        elif d > s["max_preconditioner_dim"] or d > LONGEST_ASPECT * others:
            kind = spare
        else:
            kind = "full"
        # An eigenbasis of a diagonal factor is the identity.
        kinds.append("identity" if kind == "diagonal" and s["preconditioner"] == "soap" else kind)
    return kinds


def resolved(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with every None replaced by what it stands for."""
    s = {"peak_lr": settings["lr"], **settings}
    member = s["preconditioner"]

    def default(name: str, value: Any) -> None:
        s[name] = value if s[name] is None else s[name]

    default("beta3", s["betas"][0])
    default("shampoo_beta", s["betas"][1])
    default("grafting", "adam" if member in ("shampoo", "none") else "none")
    default("grafting_beta2", s["betas"][1])
    default("precondition_frequency", {"shampoo": 50, "soap": 10, "kl": 10}.get(member, 1))
    default("statistics_frequency", 1)
    default("solver", "eigh")
    default("start_preconditioning_step", s["statistics_frequency"] + (member == "soap"))
    return s


def set_phases(blocks: Sequence[Block], s: dict[str, Any]) -> None:
    """Spreads the refreshes of these blocks, in storage order, over a period; see the top of the file."""
    f = s["precondition_frequency"]
    units = [unit for block in blocks for unit in block.units]
    total = sum(unit.cost for unit in units)
    if not s["stagger_refresh"] or total == 0:
        return
    num_large = math.floor(total / max(unit.cost for unit in units) + 0.5)
    num_stretches = min(f, math.ceil(num_large / (2 * math.ceil(num_large / f / 2))))
    before = 0
    for unit in units:
        stretch = min(num_stretches * (2 * before + unit.cost) // (2 * total), num_stretches - 1)
        unit.phase = stretch * f // num_stretches
        before += unit.cost


class ReferenceParameter:
    """One parameter's weights, blocks and step count."""

    def __init__(self, weight: Tensor, s: dict[str, Any]) -> None:
        self.s = s
        self.W = weight.detach().to(torch.float64).clone()
        self.t = 0
        self.places: list[tuple[slice, ...]] = []
        self.blocks: list[Block] = []
        self.sides = list(weight.shape)
        if weight.numel() > 0 and s["preconditioner"] != "none":
            self.sides = merge(tuple(weight.shape), s["max_preconditioner_dim"])
        if weight.numel() == 0:
            return
        if len(self.sides) < 2 or s["preconditioner"] == "none":
            self.places, self.blocks = [(slice(None),) * len(self.sides)], [PlainBlock(tuple(self.sides), [], s)]
            return
        longest = s["max_preconditioner_dim"] if s["large_dim_method"] == "blocking" else math.inf
        cuts = [piece_lengths(d, int(longest)) if d > longest else [d] for d in self.sides]
        edges = [list(itertools.accumulate(lengths, initial=0)) for lengths in cuts]
        for corner in itertools.product(*(itertools.pairwise(e) for e in edges)):
            shape = tuple(b - a for a, b in corner)
            kinds = side_kinds(shape, s)
            # Without any factor there is nothing but the plain step; orthogonalisation needs none.
            unpreconditioned = set(kinds) == {"identity"} and s["preconditioner"] != "spectral"
            member = PlainBlock if unpreconditioned else MEMBERS[s["preconditioner"]]
            self.places.append(tuple(slice(a, b) for a, b in corner))
            self.blocks.append(member(shape, kinds, s))

    def step(self, gradient: Tensor) -> None:
        s = self.s
        self.t += 1
        W, G = self.W.reshape(self.sides).clone(), gradient.detach().to(torch.float64).reshape(self.sides)
        if s["weight_decay_type"] == "l2":
            G = G + s["weight_decay"] * W
        elif s["weight_decay_type"] == "decoupled":
            W = (1 - s["lr"] * s["weight_decay"]) * W
        else:
            W = (1 - s["weight_decay"] * s["lr"] / s["peak_lr"]) * W
        for place, block in zip(self.places, self.blocks, strict=True):
            W[place] = W[place] - s["lr"] * block.step(G[place], self.t)
        self.W = W.reshape(self.W.shape)


class ReferenceShampoo:
    """The textbook optimizer over the tensors of one parameter group; weights are read from `weights`."""

    def __init__(self, tensors: Sequence[Tensor], settings: dict[str, Any]) -> None:
        self.settings = resolved(settings)
        self.parameters = [ReferenceParameter(tensor, self.settings) for tensor in tensors]
        stored: dict[tuple[Any, ...], list[Block]] = {}
        for tensor, parameter in zip(tensors, self.parameters, strict=True):
            for block in parameter.blocks:
                stored.setdefault((block.shape, tensor.dtype), []).append(block)
        set_phases([block for together in stored.values() for block in together], self.settings)

    def step(self, gradients: Sequence[Tensor | None]) -> None:
        """Steps every parameter that has a gradient."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            if gradient is not None:
                parameter.step(gradient)

    @property
    def weights(self) -> list[Tensor]:
        return [parameter.W for parameter in self.parameters]
