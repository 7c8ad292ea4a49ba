"""Shampoo and its kin in other packages, set to do what ours does at the same block size and refresh period.

Read in the sources of heavyball 3.2.1 and pytorch_optimizer 4.1.0. Common to all: float32 throughout, β = (0.9, 0.999),
decoupled weight decay, statistics at every step, preconditioned from the first step on, vectors without a factor, and
convolutions handed over as the matrices that ours works on (the packages merge kernel sides in other ways, or not at
all, which would be another amount of work). When they refresh is told to them step by step.

heavyball.SOAP, heavyball.KLShampoo
    `split=True` (needs `merge_dims=True`) cuts into blocks of `max_precond_dim`; without it a longer side has no
    factor at all. `precondition_1d=False` is the default. The refresh is one QR step. They stack equal blocks anew at
    every step. `torch.compile` of their pieces is what they are made for, with one graph for each shape of block:
    minutes of compilation on a CPU and no faster steps afterwards, so there it is off (`compiled=False`). KLShampoo
    finds all eigenvalues anew at every step, at the cost of a d×d×d product and more for each side.
pytorch_optimizer.SOAP
    knows no blocks: a side longer than `max_precondition_dim` has no factor. So it gets our blocks as its parameters,
    which spares it the copies. `precondition_1d=False`. One QR step. It rotates the average of the gradient at every
    step as well, where ours and heavyball keep it rotated: 4 passes over the matrices instead of 3.
pytorch_optimizer.DASH
    batched Shampoo with blocks (`block_size`) and Adam grafting: the same update as ours. Vectors would get a matrix,
    with no way to say otherwise, so they step with fused AdamW. Inverse roots by `eigh` on the CPU, where that is four
    times as fast as its Newton-Denman-Beavers iteration, by the latter (its default) elsewhere.
pytorch_optimizer.ScalableShampoo
    `block_size`, RMSprop grafting (it has no Adam's), `moving_average_for_momentum=True`, no Nesterov,
    `skip_preconditioning_rank_lt=2` for vectors; `shape_interpretation=False`, or it would merge a small matrix into a
    vector. Inverse roots by SVD on the CPU, where that is twice as fast as its Schur-Newton iteration.
pytorch_optimizer.Shampoo
    knows neither blocks nor grafting nor averages of factors, and takes an SVD for each factor; it gets our blocks,
    and its vectors step with fused AdamW. Only for completeness: not among the defaults.

Other methods, which are no members of ours (`shampoo/METHODS.md`), with the same blocks; they are not among the
defaults either:

pytorch_optimizer.Kron, heavyball.PSGDKron
    PSGD with a triangular factor for each side. A "refresh" is a step of the factors, which their authors take at every
    step at first. Kron gets our blocks, PSGDKron cuts them; it stores half of each factor and unpacks it in every step.
pytorch_optimizer.SPlus
    the sign of the momentum in the eigenbasis of both factors, and an average of the weights. It gets our blocks; a
    refresh is `eigh` of both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import Parameter

from tests.benchmarks.steps.contestants import BETAS, LEARNING_RATE, NEVER, WEIGHT_DECAY, Contestant, parameters
from tests.benchmarks.steps.formulas import blocks, matrix_shape
from tests.benchmarks.steps.model_shapes import Shapes

DEFAULT_PEERS: dict[str, tuple[str, ...]] = {
    "shampoo": ("pytorch_optimizer.DASH", "pytorch_optimizer.ScalableShampoo"),
    "soap": ("heavyball.SOAP", "pytorch_optimizer.SOAP"),
    "kl": ("heavyball.KLShampoo",),
}
"""Optimizers of other packages that do the same work, by member of our family."""


def build_peer(name: str, shapes: Shapes, *, block: int, device: str, compiled: bool) -> Contestant:
    """The peer of this name on parameters of its own.

    Args:
        name: one of `PEERS`.
        shapes: of the model's parameters.
        block: longest side of a block.
        device: where the parameters lie.
        compiled: heavyball with `torch.compile`.

    Raises:
        ModuleNotFoundError: its package is not installed (extra `bench`).
    """
    return PEERS[name](shapes, block, device, compiled)


def _as_matrices(shapes: Shapes, block: int, device: str) -> list[Parameter]:
    return parameters([matrix_shape(shape, block) for shape in shapes], device)


def _as_blocks(shapes: Shapes, block: int, device: str) -> list[Parameter]:
    cut = [piece for piece, count in blocks(shapes, block).items() for _ in range(count)]
    return parameters([matrix_shape(shape, block) for shape in cut], device)


def _vectors_apart(params: list[Parameter]) -> tuple[list[Parameter], list[torch.optim.Optimizer]]:
    """The matrices, and AdamW for the rest if there are any."""
    vectors = [param for param in params if param.dim() < 2]
    matrices = [param for param in params if param.dim() >= 2]
    if not vectors:
        return matrices, []
    adamw = torch.optim.AdamW(vectors, lr=LEARNING_RATE, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True)
    return matrices, [adamw]


def _heavyball(kind: str) -> Callable[[Shapes, int, str, bool], Contestant]:
    def build(shapes: Shapes, block: int, device: str, compiled: bool) -> Contestant:
        import heavyball

        if not compiled:
            heavyball.utils.compile_mode = None
        params = _as_matrices(shapes, block, device)
        optimizer = getattr(heavyball, kind)(
            params,
            lr=LEARNING_RATE,
            betas=BETAS,
            shampoo_beta=BETAS[1],
            weight_decay=WEIGHT_DECAY,
            max_precond_dim=block,
            merge_dims=True,
            split=True,
        )
        return Contestant(f"heavyball.{kind}", params, (optimizer,), _by_probability(optimizer))

    return build


def _pytorch_soap(shapes: Shapes, block: int, device: str, _compiled: bool) -> Contestant:
    from pytorch_optimizer import SOAP

    params = _as_blocks(shapes, block, device)
    optimizer = SOAP(
        params,
        lr=LEARNING_RATE,
        betas=BETAS,
        weight_decay=WEIGHT_DECAY,
        max_precondition_dim=block,
        precondition_1d=False,
    )

    def schedule(refresh: bool) -> None:
        for state in optimizer.state.values():
            state["precondition_frequency"] = _period(refresh)

    return Contestant("pytorch_optimizer.SOAP", params, (optimizer,), schedule)


def _pytorch_dash(shapes: Shapes, block: int, device: str, _compiled: bool) -> Contestant:
    from pytorch_optimizer import DASH

    params = _as_matrices(shapes, block, device)
    matrices, rest = _vectors_apart(params)
    optimizer = DASH(
        matrices,
        lr=LEARNING_RATE,
        betas=BETAS,
        weight_decay=WEIGHT_DECAY,
        block_size=block,
        inverse_root_method="eigh" if device == "cpu" else "newton_db",
    )

    def schedule(refresh: bool) -> None:
        optimizer.param_groups[0]["precondition_frequency"] = _period(refresh)

    return Contestant("pytorch_optimizer.DASH", params, (optimizer, *rest), schedule)


def _pytorch_scalable(shapes: Shapes, block: int, device: str, _compiled: bool) -> Contestant:
    from pytorch_optimizer import ScalableShampoo
    from pytorch_optimizer.optimizer.utils.graft import LayerWiseGrafting

    params = _as_matrices(shapes, block, device)
    optimizer = ScalableShampoo(
        params,
        lr=LEARNING_RATE,
        betas=BETAS,
        moving_average_for_momentum=True,
        nesterov=False,
        weight_decay=WEIGHT_DECAY,
        decoupled_weight_decay=True,
        start_preconditioning_step=1,
        block_size=block,
        skip_preconditioning_rank_lt=2,
        no_preconditioning_for_layers_with_dim_gt=NEVER,
        shape_interpretation=False,
        graft_type=LayerWiseGrafting.RMSPROP,
        use_svd=device == "cpu",
    )
    return Contestant("pytorch_optimizer.ScalableShampoo", params, (optimizer,), _by_attribute(optimizer))


def _pytorch_shampoo(shapes: Shapes, block: int, device: str, _compiled: bool) -> Contestant:
    from pytorch_optimizer import Shampoo

    params = _as_blocks(shapes, block, device)
    matrices, rest = _vectors_apart(params)
    optimizer = Shampoo(matrices, lr=LEARNING_RATE, momentum=BETAS[0], weight_decay=WEIGHT_DECAY, weight_decouple=True)
    return Contestant("pytorch_optimizer.Shampoo", params, (optimizer, *rest), _by_attribute(optimizer))


def _pytorch_kron(shapes: Shapes, block: int, device: str, _compiled: bool) -> Contestant:
    from pytorch_optimizer import Kron

    params = _as_blocks(shapes, block, device)
    optimizer = Kron(
        params,
        lr=LEARNING_RATE,
        momentum=BETAS[0],
        weight_decay=WEIGHT_DECAY,
        max_size_triangular=block,
        balance_prob=0,
    )

    def schedule(refresh: bool) -> None:
        optimizer.param_groups[0]["pre_conditioner_update_probability"] = float(refresh)

    return Contestant("pytorch_optimizer.Kron", params, (optimizer,), schedule)


def _heavyball_kron(shapes: Shapes, block: int, device: str, compiled: bool) -> Contestant:
    import heavyball

    if not compiled:
        heavyball.utils.compile_mode = None
    params = _as_matrices(shapes, block, device)
    optimizer = heavyball.PSGDKron(
        params,
        lr=LEARNING_RATE,
        betas=BETAS,
        weight_decay=WEIGHT_DECAY,
        max_size_triangular=block,
        merge_dims=True,
        split=True,
    )
    return Contestant("heavyball.PSGDKron", params, (optimizer,), _by_probability(optimizer))


def _pytorch_splus(shapes: Shapes, block: int, device: str, _compiled: bool) -> Contestant:
    from pytorch_optimizer import SPlus

    params = _as_blocks(shapes, block, device)
    # Of its own a side of `max_dim` has no factor any more.
    optimizer = SPlus(params, lr=LEARNING_RATE, betas=BETAS, weight_decay=WEIGHT_DECAY, max_dim=block + 1)

    def schedule(refresh: bool) -> None:
        optimizer.param_groups[0]["inverse_steps"] = _period(refresh)

    return Contestant("pytorch_optimizer.SPlus", params, (optimizer,), schedule)


def _by_probability(optimizer: Any) -> Callable[[bool], None]:
    refreshes = [False]
    # A refresh is due when the sum of these probabilities passes an integer.
    optimizer.precond_schedule = lambda _step: float(refreshes[0])

    def schedule(refresh: bool) -> None:
        refreshes[0] = refresh

    return schedule


def _by_attribute(optimizer: Any) -> Callable[[bool], None]:
    def schedule(refresh: bool) -> None:
        optimizer.preconditioning_compute_steps = _period(refresh)

    return schedule


def _period(refresh: bool) -> int:
    """Every step number is a multiple of 1, none of `NEVER`."""
    return 1 if refresh else NEVER


PEERS: dict[str, Callable[[Shapes, int, str, bool], Contestant]] = {
    "heavyball.SOAP": _heavyball("SOAP"),
    "heavyball.KLShampoo": _heavyball("KLShampoo"),
    "pytorch_optimizer.SOAP": _pytorch_soap,
    "pytorch_optimizer.DASH": _pytorch_dash,
    "pytorch_optimizer.ScalableShampoo": _pytorch_scalable,
    "pytorch_optimizer.Shampoo": _pytorch_shampoo,
    "heavyball.PSGDKron": _heavyball_kron,
    "pytorch_optimizer.Kron": _pytorch_kron,
    "pytorch_optimizer.SPlus": _pytorch_splus,
}
