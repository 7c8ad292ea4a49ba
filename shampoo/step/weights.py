"""The weights and gradients of a step: which take part, in which precision they are stepped, and the way back.

Blocks are strided views of contiguous tensors in the precision of the state. So weights of another layout, and weights
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
from shampoo.step.rounding import rounding_noise, stochastic_round_to_bfloat16_, stochastic_round_to_float16_
from shampoo.torch_internals import foreach_add_, foreach_copy_, foreach_mul_, foreach_norm, fused_adamw_


@dataclass(frozen=True, slots=True)
class Flag:
    """Scalars on the device that tell whether the gradient of a parameter is finite; the host does not know."""

    is_skipped: Tensor
    """True if the gradient is not finite."""
    found_inf: Tensor
    """1 if the gradient is not finite, else 0; float32, as torch's fused kernels expect."""
    takes_part: Tensor
    """0 if the gradient is not finite, else 1; in the precision of the state."""
    kept: Tensor
    """The factor that weight decay multiplies the weights by: 1 if the gradient is not finite."""


@dataclass(frozen=True, slots=True)
class FiniteGradients:
    """The parameters that take a step, and flags for finite gradients if only the device knows."""

    taking_part: Sequence[Tensor]
    flags: Mapping[Tensor, Flag]
    """Empty if the host knows: then parameters whose gradients are not finite do not take part."""

    def of_pieces(self, pieces: Sequence[BucketPiece]) -> list[Flag] | None:
        """The flag of each piece; None if the host knows."""
        if not self.flags or pieces[0].param not in self.flags:
            return None
        return [self.flags[piece.param] for piece in pieces]


def finite_gradients(
    params: Sequence[Tensor], num_skipped: Sequence[Tensor], norms: Mapping[Tensor, Tensor], *, kept: float
) -> FiniteGradients:
    """Finds gradients that are not finite, and counts them in `num_skipped`, in place.

    A norm that overflows is not finite either: neither would the entries of G Gᵀ be. `norms` has the norms that are
    known: for a part of a parameter, that of the whole one. `kept` is what weight decay leaves of weights.
    """
    by_dtype: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for index, param in enumerate(params):
        by_dtype.setdefault((param.device, state_dtype(param.dtype)), []).append(index)
    knows: dict[int, bool] = {}
    flags: dict[Tensor, Flag] = {}
    for (device, dtype), indices in by_dtype.items():
        norm_of = {index: norms[params[index]] for index in indices if params[index] in norms} if norms else {}
        gradients = {index: params[index].grad for index in indices if index not in norm_of}
        present = {index: gradient for index, gradient in gradients.items() if gradient is not None}
        if present:
            norm_of.update(zip(present, foreach_norm(list(present.values()), 2, dtype=dtype), strict=True))
        finite = torch.stack([norm_of[index] for index in indices]).isfinite()
        if device.type in buckets.READABLE_DEVICES:
            knows.update(zip(indices, finite.tolist(), strict=True))
        else:
            knows.update(dict.fromkeys(indices, True))
            is_skipped, takes_part = ~finite, finite.to(dtype)
            of_each = (is_skipped, is_skipped.float(), takes_part, takes_part.mul(kept - 1).add_(1))
            of_params = (Flag(*values) for values in zip(*(x.unbind() for x in of_each), strict=True))
            flags.update(zip((params[index] for index in indices), of_params, strict=True))
            foreach_add_([num_skipped[index] for index in indices], list(is_skipped.unbind()))
    for index, is_finite in knows.items():
        if not is_finite:
            num_skipped[index].add_(1)
    return FiniteGradients([param for index, param in enumerate(params) if knows[index]], flags)


class Weights:
    """Contiguous weights and gradients of the parameters that take a step, for the duration of the step."""

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
        has_masters = h.low_precision_weights == "master"
        for param in steps:
            gradient = param.grad
            assert gradient is not None
            self.gradients[param] = gradient.contiguous()
            master = state[param].get("master") if has_masters else None
            if master is not None:
                self.of[param] = master
            elif self._rounds(param):
                self.of[param] = param.to(torch.float32, memory_format=torch.contiguous_format)
            else:
                self.of[param] = param if param.is_contiguous() else param.contiguous()

    def write_gradient(self, chunk: Chunk, G: Tensor, flags: Sequence[Flag] | None, *, l2: float) -> None:
        """Writes the gradient of a chunk, plus `l2` times the weights, into G, and 0 for pieces whose gradient is not
        finite."""
        if flags is not None and l2 == 0 and self._go_by_piece(chunk, G.dtype):
            zero = torch.zeros((), dtype=G.dtype, device=G.device)
            for part, gradient, flag in zip(chunk.parts(G), chunk.regions(self.gradients), flags, strict=True):
                torch.where(flag.is_skipped, zero, gradient, out=part)
            return
        for parts, gradients in chunk.aligned(G, self.gradients):
            foreach_copy_(parts, gradients)
        if l2 > 0:
            for parts, weights in chunk.aligned(G, self.of):
                foreach_add_(parts, weights, alpha=l2)
        if flags is not None:
            G.masked_fill_(_by_row([flag.is_skipped for flag in flags], chunk, G), 0.0)

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
        self, chunk: Chunk, P: BlockDirection, lr: float, *, kept: float, flags: Sequence[Flag], spare: Tensor
    ) -> None:
        """W ← kept·W − lr·P for the pieces whose gradient is finite, and nothing for others: the device decides."""
        takes_part = [flag.takes_part for flag in flags]
        if isinstance(P.factor, Tensor):
            by_row, value = _by_row(takes_part, chunk, spare) * P.factor, -lr
        else:
            by_row, value = None, -lr * P.factor
        # The decay is a separate operation. Not W + (kept − 1)·W: a weight may be infinite.
        if self._go_by_piece(chunk, spare.dtype):
            factors = takes_part if by_row is None else chunk.parts(by_row)
            for weights, part, factor, flag in zip(
                chunk.regions(self.of), chunk.parts(P.tensor), factors, flags, strict=True
            ):
                if kept != 1:
                    weights.mul_(flag.kept)
                weights.addcmul_(part, factor, value=value)
            return
        by_row = _by_row(takes_part, chunk, spare) if by_row is None else by_row
        pairs = chunk.aligned(spare, self.of)
        if kept == 1:
            torch.mul(P.tensor, by_row, out=spare)
            for directions, of_pieces in pairs:
                foreach_add_(of_pieces, directions, alpha=value)
            return
        for copies, of_pieces in pairs:
            foreach_copy_(copies, of_pieces)
        spare.mul_(_by_row([flag.kept for flag in flags], chunk, spare)).addcmul_(P.tensor, by_row, value=value)
        for copies, of_pieces in pairs:
            foreach_copy_(of_pieces, copies)

    def _go_by_piece(self, chunk: Chunk, dtype: torch.dtype) -> bool:
        """True if only the device knows, and each piece is stepped in place, in the precision of the state."""
        return chunk.goes_by_piece and self.are_in(chunk, dtype)

    def are_in(self, chunk: Chunk, dtype: torch.dtype) -> bool:
        """True if the weights and gradients of a chunk have this dtype."""
        dtypes = {tensors[piece.param].dtype for tensors in (self.of, self.gradients) for piece in chunk.pieces}
        return dtypes == {dtype}

    def adamw_where_finite(
        self, chunk: Chunk, h: Hyperparameters, *, step: int, kept: float, flags: Sequence[Flag]
    ) -> None:
        """AdamW's step of a chunk of plain steps, and nothing for pieces whose gradient was not finite: one pass over
        weights, gradient and moments of each."""
        M, V = chunk.state.first_moment, chunk.state.second_moment
        assert M is not None
        assert V is not None
        t = torch.full((), float(step), dtype=torch.float32, device=M.device)
        for piece, flag in zip(chunk.pieces, flags, strict=True):
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
                found_inf=flag.found_inf,
            )

    def write_back(self) -> None:
        """Writes the copies back into the parameters."""
        for param, weight in self.of.items():
            if weight is param:
                continue
            if not self._rounds(param):
                param.copy_(weight)
                continue
            # The seed depends only on the step and the parameter's position, so a resumed run draws the same bits. The
            # factor is a prime, which keeps the seeds apart in models with fewer parameters than that.
            generator = torch.Generator(device=param.device)
            generator.manual_seed(self._steps[param] * 1_000_003 + self._positions[param])
            noise = rounding_noise(weight.shape, generator)
            if param.dtype == torch.bfloat16:
                stochastic_round_to_bfloat16_(param, weight, noise)
            else:
                stochastic_round_to_float16_(param, weight, noise)

    def _rounds(self, param: Tensor) -> bool:
        return self._stochastic and param.dtype in (torch.bfloat16, torch.float16)


def _by_row(values: Sequence[Tensor], chunk: Chunk, like: Tensor) -> Tensor:
    """The scalar of each piece, repeated for each row of the chunk, (K, 1, ..., 1)."""
    rows = [value.expand(piece.stop - piece.start) for value, piece in zip(values, chunk.pieces, strict=True)]
    return per_row(rows[0] if len(rows) == 1 else torch.cat(rows), like)


def per_row(flags: Tensor, like: Tensor) -> Tensor:
    """Flags (K,) as (K, 1, ..., 1)."""
    return flags.view(-1, *(1 for _ in like.shape[1:]))
