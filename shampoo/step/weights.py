"""The weights and gradients of a step: which take part, in which precision they are stepped, and the way back.

Blocks are strided views of contiguous tensors in the precision of the state, so weights of another layout, and those
below float32 unless rounding to nearest is wanted, are stepped in a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shampoo.hyperparameters import Hyperparameters
from shampoo.state.buckets import BucketPiece, Chunk, state_dtype
from shampoo.step.rounding import stochastic_round_to_bfloat16_, stochastic_round_to_float16_
from shampoo.torch_internals import foreach_add_, foreach_copy_, foreach_mul_, foreach_norm

READABLE_DEVICES = frozenset({"cpu"})
"""Types of device of which the host reads a number without waiting for a queue of work."""


def gradient_of(param: Tensor) -> Tensor | None:
    """The gradient, if there is one.

    Raises:
        RuntimeError: it is sparse.
    """
    gradient = param.grad
    if gradient is not None and gradient.layout != torch.strided:
        raise RuntimeError(f"Shampoo needs dense gradients, got {gradient.layout} for shape {tuple(param.shape)}")
    return gradient


@dataclass(frozen=True, slots=True)
class FiniteGradients:
    """The parameters that take a step, and, where only the device knows, whether their gradients are finite."""

    taking_part: Sequence[Tensor]
    flags: Mapping[Tensor, Tensor]
    """Scalars on the device; empty where the host knows, and then those that are not finite do not take part."""

    def rows(self, pieces: Sequence[BucketPiece]) -> Tensor | None:
        """The flag of each row of consecutive pieces, (K,); None where the host knows."""
        if pieces[0].param not in self.flags:
            return None
        return torch.cat([self.flags[piece.param].expand(piece.stop - piece.start) for piece in pieces])


def finite_gradients(
    params: Sequence[Tensor], num_skipped: Sequence[Tensor], norms: Mapping[Tensor, Tensor]
) -> FiniteGradients:
    """Sorts out gradients that are not finite, and counts them in `num_skipped`, in place.

    A norm that overflows is not finite either: neither would the entries of G Gᵀ be. `norms` has those that are known:
    of a part of a parameter, that of the whole one.
    """
    by_dtype: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for index, param in enumerate(params):
        by_dtype.setdefault((param.device, state_dtype(param.dtype)), []).append(index)
    knows: dict[int, bool] = {}
    flags: dict[Tensor, Tensor] = {}
    for (device, dtype), indices in by_dtype.items():
        norm_of = dict(norms)
        gradients = {params[index]: params[index].grad for index in indices if params[index] not in norms}
        present = {param: gradient for param, gradient in gradients.items() if gradient is not None}
        if present:
            norm_of |= zip(present, foreach_norm(list(present.values()), 2, dtype=dtype), strict=True)
        finite = torch.stack([norm_of[params[index]] for index in indices]).isfinite()
        if device.type in READABLE_DEVICES:
            knows.update(zip(indices, finite.tolist(), strict=True))
        else:
            knows.update(dict.fromkeys(indices, True))
            flags.update(zip((params[index] for index in indices), finite.unbind(), strict=True))
            foreach_add_([num_skipped[index] for index in indices], list((~finite).unbind()))
    for index, is_finite in knows.items():
        if not is_finite:
            num_skipped[index].add_(1)
    return FiniteGradients([param for index, param in enumerate(params) if knows[index]], flags)


class Weights:
    """Contiguous weights and gradients of the parameters that take a step, for the time of the step."""

    def __init__(
        self,
        steps: Mapping[Tensor, int],
        state: Mapping[Tensor, dict[str, Any]],
        h: Hyperparameters,
        *,
        positions: Mapping[Tensor, int],
    ) -> None:
        """`steps` by parameter that takes part; `positions` of all parameters of the optimizer, for the random bits."""
        self.of: dict[Tensor, Tensor] = {}
        self.gradients: dict[Tensor, Tensor] = {}
        self._steps = steps
        self._positions = positions
        self._stochastic = h.low_precision_weights == "stochastic"
        for param in steps:
            gradient = gradient_of(param)
            assert gradient is not None
            self.gradients[param] = gradient.contiguous()
            master = state[param].get("master")
            if master is not None:
                self.of[param] = master
            elif self._rounds(param):
                self.of[param] = param.to(torch.float32, memory_format=torch.contiguous_format)
            else:
                self.of[param] = param if param.is_contiguous() else param.contiguous()

    def move(self, chunk: Chunk, P: Tensor, lr: float, *, kept: float) -> None:
        """W ← kept·W − lr·P for a chunk, P (K, d_1, ..., d_k)."""
        for directions, weights in chunk.aligned(P, self.of):
            if kept != 1:
                foreach_mul_(weights, kept)
            foreach_add_(weights, directions, alpha=-lr)

    def move_where_finite(
        self, chunk: Chunk, P: Tensor, lr: float, *, kept: float, is_finite: Tensor, spare: Sequence[Tensor]
    ) -> None:
        """The same for rows (K,) whose gradient was finite, and nothing for others: the device decides.

        Args:
            spare: two tensors like P, to work in.
        """
        first, second = spare
        mask = per_row(is_finite, P)
        pairs = chunk.aligned(first, self.of)
        for copies, weights in pairs:
            foreach_copy_(copies, weights)
        if kept != 1:
            # In the weights' precision, so that they decay as where the host knows.
            first.mul_(torch.where(mask, first.new_full((), kept), 1.0))
        first.add_(torch.mul(P, mask, out=second), alpha=-lr)
        for copies, weights in pairs:
            foreach_copy_(weights, copies)

    def write_back(self) -> None:
        """Brings copies back into the parameters."""
        for param, weight in self.of.items():
            if weight is param:
                continue
            if not self._rounds(param):
                param.copy_(weight)
                continue
            # Drawn from the step and the parameter's position alone, so that a resumed run draws the same. A prime
            # keeps the seeds of models of fewer parameters apart.
            generator = torch.Generator(device=param.device)
            generator.manual_seed(self._steps[param] * 1_000_003 + self._positions[param])
            if param.dtype == torch.bfloat16:
                stochastic_round_to_bfloat16_(param, weight, generator=generator)
            else:
                stochastic_round_to_float16_(param, weight, generator=generator)

    def _rounds(self, param: Tensor) -> bool:
        return self._stochastic and param.dtype in (torch.bfloat16, torch.float16)


def per_row(flags: Tensor, like: Tensor) -> Tensor:
    """Flags (K,) as (K, 1, ..., 1)."""
    return flags.view(-1, *(1 for _ in like.shape[1:]))
