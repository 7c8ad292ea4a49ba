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
from shampoo.state import buckets
from shampoo.state.buckets import BucketPiece, Chunk, state_dtype
from shampoo.step.block_step import BlockDirection
from shampoo.step.rounding import stochastic_round_to_bfloat16_, stochastic_round_to_float16_
from shampoo.torch_internals import foreach_add_, foreach_copy_, foreach_mul_, foreach_norm, fused_adamw_


@dataclass(frozen=True, slots=True)
class FiniteGradients:
    """The parameters that take a step, and, where only the device knows, whether their gradients are finite."""

    taking_part: Sequence[Tensor]
    flags: Mapping[Tensor, Tensor]
    """Scalars on the device; empty where the host knows, and then those that are not finite do not take part."""

    def rows(self, pieces: Sequence[BucketPiece]) -> Tensor | None:
        """The flag of each row of consecutive pieces, (K,); None where the host knows."""
        flags = self.of_pieces(pieces)
        if flags is None:
            return None
        return torch.cat([flag.expand(piece.stop - piece.start) for flag, piece in zip(flags, pieces, strict=True)])

    def of_pieces(self, pieces: Sequence[BucketPiece]) -> list[Tensor] | None:
        """The flag of each piece; None where the host knows."""
        return [self.flags[piece.param] for piece in pieces] if pieces[0].param in self.flags else None


def finite_gradients(
    params: Sequence[Tensor], num_skipped: Sequence[Tensor], norms: Mapping[Tensor, Tensor]
) -> FiniteGradients:
    """Sorts out gradients that are not finite, and counts them in `num_skipped`, in place.

    A norm that overflows is not finite either: neither would the entries of G Gᵀ be. `norms` has the norms that are
    known: for a part of a parameter, that of the whole one.
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
        if device.type in buckets.READABLE_DEVICES:
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
            gradient = param.grad
            assert gradient is not None
            self.gradients[param] = gradient.contiguous()
            master = state[param].get("master")
            if master is not None:
                self.of[param] = master
            elif self._rounds(param):
                self.of[param] = param.to(torch.float32, memory_format=torch.contiguous_format)
            else:
                self.of[param] = param if param.is_contiguous() else param.contiguous()

    def move(self, chunk: Chunk, P: BlockDirection, lr: float, *, kept: float, spare: Tensor) -> None:
        """W ← kept·W − lr·P for a chunk.

        Args:
            spare: a tensor like P's, to work in.
        """
        if isinstance(P.factor, Tensor):
            tensor, factor = torch.mul(P.tensor, P.factor, out=spare), 1.0
        else:
            tensor, factor = P.tensor, P.factor
        for directions, weights in chunk.aligned(tensor, self.of):
            if kept != 1:
                foreach_mul_(weights, kept)
            foreach_add_(weights, directions, alpha=-lr * factor)

    def move_where_finite(
        self, chunk: Chunk, P: BlockDirection, lr: float, *, kept: float, is_finite: Tensor, spare: Tensor
    ) -> None:
        """W ← kept·W − lr·P for the rows (K,) whose gradient was finite, and nothing for others: the device decides."""
        takes_part = per_row(is_finite, spare).to(spare.dtype)
        by_row, factor = (takes_part * P.factor, 1.0) if isinstance(P.factor, Tensor) else (takes_part, P.factor)
        pairs = chunk.aligned(spare, self.of)
        if kept == 1:
            torch.mul(P.tensor, by_row, out=spare)
            for directions, weights in pairs:
                foreach_add_(weights, directions, alpha=-lr * factor)
            return
        for copies, weights in pairs:
            foreach_copy_(copies, weights)
        # Not W + (kept − 1)·W: a weight may be infinite.
        spare.mul_(takes_part.mul(kept - 1).add_(1)).addcmul_(P.tensor, by_row, value=-lr * factor)
        for copies, weights in pairs:
            foreach_copy_(weights, copies)

    def are_as_state(self, chunk: Chunk) -> bool:
        """True if weights, gradients and moments of a chunk of plain steps have one dtype."""
        dtypes = {tensors[piece.param].dtype for tensors in (self.of, self.gradients) for piece in chunk.pieces}
        return chunk.state.first_moment is not None and dtypes == {chunk.state.first_moment.dtype}

    def adamw_where_finite(
        self, chunk: Chunk, h: Hyperparameters, *, step: int, kept: float, is_finite: Sequence[Tensor]
    ) -> None:
        """AdamW's step of a chunk of plain steps, and nothing for pieces whose gradient was not finite: one pass over
        weights, gradient and moments of each."""
        M, V = chunk.state.first_moment, chunk.state.second_moment
        assert M is not None
        assert V is not None
        t = torch.full((), float(step), dtype=torch.float32, device=M.device)
        is_skipped = torch.stack(list(is_finite)).logical_not().float().unbind()
        for piece, skipped in zip(chunk.pieces, is_skipped, strict=True):
            rows = slice(piece.start - chunk.start, piece.stop - chunk.start)
            fused_adamw_(
                [piece.region.flat(self.of[piece.param])],
                [piece.region.flat(self.gradients[piece.param])],
                [M[rows]],
                [V[rows]],
                [],
                [t],
                lr=h.lr,
                beta1=h.betas[0],
                beta2=h.second_moment_beta,
                weight_decay=0.0 if kept == 1 else (1 - kept) / h.lr,
                eps=h.grafting_epsilon,
                amsgrad=False,
                maximize=False,
                found_inf=skipped,
            )

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
