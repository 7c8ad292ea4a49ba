"""`shampoo.cost.estimate` against what an optimizer allocates and does: bytes exactly, matrix products as counted.

`FlopCounterMode` and a dispatch mode count real steps. They see batched matrix products (in place as well), and neither
elementwise work nor what LAPACK does inside of decompositions and triangular solves.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from shampoo import Shampoo
from shampoo.cost import estimate
from shampoo.hyperparameters import DEFAULTS, Hyperparameters
from shampoo.state.blocking import regions
from shampoo.state.factors import side_kinds
from tests.benchmarks.steps.counts import (
    Scratch,
    StepCounts,
    allocated_bytes,
    count_launches,
    count_products,
    count_step,
    take_step,
)
from tests.benchmarks.steps.model_shapes import gpt2, llama_1b, mlp
from tests.support.shampoo.members import MEMBERS, REPRESENTATIVES, WITH_FACTORS, crossed, member
from tests.support.shampoo.settings import parameters, train

# With blocks of at most 8: uneven pieces, a side much longer than the rest, every order, scalars, nothing at all.
ODD_SHAPES = [(), (1,), (13,), (0,), (0, 3), (9, 17), (9, 17), (1, 6), (300, 2), (5, 9, 7), (3, 5, 4, 6), (40, 3)]
LOW_PRECISION_WEIGHTS = ("nearest", "stochastic", "master")


def _state_tensors(optimizer: Shampoo) -> list[Tensor]:
    return [x for state in optimizer.state.values() for x in state.values() if isinstance(x, Tensor)]


# --- bytes ---


PRECISIONS = [
    (torch.float32, "nearest"),
    (torch.float64, "nearest"),
    *((dtype, weights) for dtype in (torch.bfloat16, torch.float16) for weights in LOW_PRECISION_WEIGHTS),
]


@pytest.mark.parametrize("precision", PRECISIONS, ids=str)
def test_state_bytes_of_every_member_are_those_allocated(precision: tuple[torch.dtype, str]) -> None:
    dtype, weights = precision
    for name in (name for name, value in crossed(PRECISIONS) if value == precision):
        config = {**member(name), "low_precision_weights": weights}
        optimizer = Shampoo(parameters(ODD_SHAPES, dtype), **config)
        estimated = estimate(ODD_SHAPES, dtype=dtype, **config).state_bytes
        assert estimated == allocated_bytes(_state_tensors(optimizer)), name


@pytest.mark.parametrize("state_dtype", ["bfloat16", "int8", "int4"])
@pytest.mark.parametrize("preconditioner", ["shampoo", "soap", "kl"])
def test_bytes_of_low_precision_state_with_momentum_are_those_allocated(preconditioner: str, state_dtype: str) -> None:
    config: dict[str, Any] = {
        "preconditioner": preconditioner,
        "state_dtype": state_dtype,
        "momentum": 0.9,
        "max_preconditioner_dim": 70,
    }
    shapes = [(70, 65), (64, 64), (3, 2), *ODD_SHAPES]
    for dtype in (torch.bfloat16, torch.float64):
        optimizer = Shampoo(parameters(shapes, dtype), **config)
        assert estimate(shapes, dtype=dtype, **config).state_bytes == allocated_bytes(_state_tensors(optimizer))


@given(
    shapes=st.lists(
        st.lists(st.sampled_from([0, 1, 2, 3, 7, 8, 9, 17, 40, 67]), max_size=4)
        .map(tuple)
        .filter(lambda shape: math.prod(shape) <= 4000),
        min_size=1,
        max_size=4,
    ),
    name=st.sampled_from(sorted(MEMBERS)),
    max_dim=st.sampled_from([2, 3, 8, 16, 64]),
    dtype=st.sampled_from([torch.bfloat16, torch.float32, torch.float64]),
)
def test_bytes_and_blocks_of_any_shapes_are_those_allocated(
    shapes: list[tuple[int, ...]], name: str, max_dim: int, dtype: torch.dtype
) -> None:
    config = member(name, max_preconditioner_dim=max_dim)
    optimizer = Shampoo(parameters(shapes, dtype), **config)
    cost = estimate(shapes, dtype=dtype, **config)
    assert cost.state_bytes == allocated_bytes(_state_tensors(optimizer))
    moments = ("first_moment", "second_moment", "momentum", "num_skipped")
    of_factors = [
        x
        for state in optimizer.state.values()
        for key, x in state.items()
        if isinstance(x, Tensor) and not key.startswith(moments)
    ]
    assert cost.preconditioner_bytes == sum(x.nbytes for x in of_factors)


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_steps_allocate_no_further_state_and_scratch_as_bounded(name: str) -> None:
    params = parameters(ODD_SHAPES)
    config = member(name)
    optimizer = Shampoo(params, **config)
    train(optimizer, params, range(5))
    cost = estimate(ODD_SHAPES, dtype=torch.float64, **config)
    assert cost.state_bytes == allocated_bytes(_state_tensors(optimizer))
    slabs = [slab.memory for kept in optimizer._step_group.scratch.values() for slab in kept]
    assert 0 < allocated_bytes(slabs) <= cost.scratch_bytes


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_large_tables_need_scratch_memory_only_where_they_have_no_kernel_of_their_own(momentum: float) -> None:
    shapes = [(2048, 1024), (1024,)]
    config: dict[str, Any] = {"preconditioner": "none", "momentum": momentum}
    optimizer = Shampoo(params := [nn.Parameter(torch.empty(shape, device="meta")) for shape in shapes], **config)
    for param in params:
        param.grad = torch.empty_like(param)
    take_step(optimizer.step, device="meta")
    slabs = [slab.memory for kept in optimizer._step_group.scratch.values() for slab in kept]
    assert 0.99 <= allocated_bytes(slabs) / estimate(shapes, device="meta", **config).scratch_bytes <= 1
    assert (allocated_bytes(slabs) > 2048 * 1024) == (momentum > 0)


# --- matrix products ---

COUNTED_SHAPES = [(48, 48), (48, 48), (96, 40), (9, 24, 30), (17,)]
PERIOD = 4

# Of the refresh of a d×d factor what the counter cannot see, in d³: LAPACK's part.
_UNSEEN_CUBES = {"eigh": 9.0, "eigh64": 9.0, "qr": 8 / 3, "cholesky_qr": 2 * (1 / 3 + 1), "coupled_newton": 0.0}


@pytest.fixture
def one_thread() -> Any:
    """Modes that count are a thread's own: refreshes in other threads would go uncounted."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def _config(name: str) -> dict[str, Any]:
    config = member(name, max_preconditioner_dim=48, precondition_frequency=PERIOD)
    if name in WITH_FACTORS:
        config["stagger_refresh"] = False  # a refresh step is one of everything
    if "refresh_tolerance" in config:
        config["refresh_tolerance"] = 1e-6  # looks, and leaves nothing out
    return config


def _counted_steps(config: dict[str, Any]) -> tuple[list[tuple[int, int]], tuple[int, int], tuple[int, int]]:
    """Products, and their operations, of ordinary steps, a whole statistics period; of one that refreshes all, and of
    its statistics."""
    h = Hyperparameters(**{**DEFAULTS, **config})
    params = parameters(COUNTED_SHAPES, torch.float32)
    optimizer = Shampoo(params, **config)
    refresh = h.first_refresh + PERIOD
    k = 1 if h.low_precision_state else h.statistics_period
    train(optimizer, params, range(1, refresh))
    refreshing, *ordinary = [
        count_products(functools.partial(train, optimizer, params, range(t, t + 1)))
        for t in range(refresh, refresh + k + 1)
    ]
    return ordinary, refreshing, ordinary[-1]


def _sum_of_cubes(h: Hyperparameters) -> int:
    return sum(
        region.num_blocks * d**3
        for shape in COUNTED_SHAPES
        for region in regions(shape, h)
        for d, kind in zip(region.block, side_kinds(region.block, h), strict=False)
        if kind == "full"
    )


def _num_products(counts: StepCounts) -> int:
    return sum(num for operation, num in counts.operations.items() if "bmm" in operation)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", MEMBERS)
def test_operations_and_kernels_of_steps_and_refreshes_are_those_counted(name: str) -> None:
    config = _config(name)
    h = Hyperparameters(**{**DEFAULTS, **config})
    cost = estimate(COUNTED_SHAPES, **config)
    ordinary, refresh, with_statistics = _counted_steps(config)
    # All buckets are smaller than a chunk, so each product is one kernel.
    assert with_statistics[0] == cost.num_matrix_products
    counted_step = sum(operations for _, operations in ordinary) / len(ordinary)
    counted_refresh = refresh[1] - with_statistics[1]
    visible_refresh = cost.refresh_operations
    if name in WITH_FACTORS:
        visible_refresh -= round(_UNSEEN_CUBES[h.solver_on("cpu")] * _sum_of_cubes(h))
    if h.state_dtype == "int4":
        # Of a read of eigenvectors the counter sees four of five d³, and nothing of a write.
        assert 0.8 * cost.step_operations <= counted_step <= cost.step_operations
        assert 0.75 * visible_refresh <= counted_refresh <= visible_refresh
        return
    assert counted_step == cost.step_operations
    if h.solver_on("cpu") == "coupled_newton" and name in WITH_FACTORS:
        # As many iterations as it takes, instead of 18.
        assert 0.4 * visible_refresh <= counted_refresh <= 1.5 * visible_refresh
    else:
        # Estimates are rounded once for each unit and block; Cholesky QR makes one pass to three, instead of two.
        tolerance = 0.25 if h.solver_on("cpu") == "cholesky_qr" and name in WITH_FACTORS else 1e-4
        assert counted_refresh == pytest.approx(visible_refresh, rel=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("preconditioner", ["shampoo", "soap", "kl", "spectral"])
def test_products_of_gpt2_on_an_accelerator_are_those_counted(preconditioner: str) -> None:
    # On the meta device a step takes the path of an accelerator, and chunks are whole buckets.
    config: dict[str, Any] = {"preconditioner": preconditioner}
    if preconditioner != "spectral":
        config["precondition_frequency"] = 10**9
    params = [nn.Parameter(torch.empty(shape, device="meta")) for shape in gpt2()]
    optimizer = Shampoo(params, **config)
    for param in params:
        param.grad = torch.empty_like(param)
    for _ in range({"spectral": 0, "soap": 2}.get(preconditioner, 1)):  # up to the first refresh
        take_step(optimizer.step, device="meta")
    counts = count_step(optimizer.step, device="meta", scratch=Scratch())
    cost = estimate(gpt2(), device="meta", **config)
    assert _num_products(counts) == cost.num_matrix_products
    assert counts.floating_point_operations == cost.step_operations
    assert cost.state_bytes == allocated_bytes(_state_tensors(optimizer))


KERNELS: dict[str, dict[str, Any]] = {
    "shampoo": {},
    "shampoo_eigh": {"solver": "eigh"},
    "shampoo_one_sided": {"one_sided": True},
    "soap": {"preconditioner": "soap"},
    "soap_eigh": {"preconditioner": "soap", "solver": "eigh"},
    "kl": {"preconditioner": "kl"},
    "kl_eigh": {"preconditioner": "kl", "solver": "eigh"},
    "spectral": {"preconditioner": "spectral"},
    "spectral_swan": {"preconditioner": "spectral", "standardize_rows": True, "betas": (0.0, 0.999)},
    "spectral_rows": {"preconditioner": "spectral", "matrix_norm": "rows"},
    "spectral_rank": {"preconditioner": "spectral", "rank": 8},
    "none": {"preconditioner": "none"},
}


KERNEL_SHAPES: list[list[tuple[int, ...]]] = [
    [(64, 64)] * 3,
    [(64, 64), (32, 64), (16, 8), (64,)],
    [(16, 17, 18), (9,)],
]
VARIANTS = [name for name in KERNELS if "_" in name]
"""They meet one list of shapes each, in turns; whose variants they are, every one."""


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("name", "shapes"),
    [(name, shapes) for name in KERNELS if name not in VARIANTS for shapes in KERNEL_SHAPES]
    + [(name, KERNEL_SHAPES[number % len(KERNEL_SHAPES)]) for number, name in enumerate(VARIANTS)],
)
def test_kernels_on_an_accelerator_are_about_those_counted(name: str, shapes: list[tuple[int, ...]]) -> None:
    config = {"weight_decay": 0.1, **KERNELS[name]}
    has_factors = not name.startswith(("spectral", "none"))
    params = [nn.Parameter(torch.empty(shape, device="meta")) for shape in shapes]
    optimizer = Shampoo(params, **config)
    found = []
    before = (2 if "soap" in name else 1) if has_factors else 0  # statistics, and a first refresh, which is another
    for step in range(before + 2):
        for param in params:
            param.grad = torch.empty_like(param)
        if has_factors:
            optimizer.param_groups[0]["precondition_frequency"] = 10**9 if step > before else 1
        if step < before:
            take_step(optimizer.step, device="meta")
        else:
            found.append(count_launches(optimizer.step, device="meta"))
    refreshing, ordinary = found
    cost = estimate(shapes, device="meta", **config)
    assert 0.8 * ordinary <= cost.step_kernels <= 1.2 * ordinary
    added = refreshing - ordinary
    assert 0.75 * added <= cost.refresh_kernels <= 1.25 * added
    assert estimate([], **config).step_kernels == 0


@pytest.mark.usefixtures("one_thread")
def test_operations_are_an_upper_bound_where_half_of_a_gram_matrix_is_left_out() -> None:
    # Of the Gram matrix of a side of 512 the CPU computes 5/8, and of shampoo's products that is a half.
    params = parameters([(512, 512)], torch.float32)
    optimizer = Shampoo(params, precondition_frequency=10**6)
    train(optimizer, params, range(1))
    counted = count_step(lambda: train(optimizer, params, range(1, 2)), device="cpu", scratch=Scratch())
    expected = estimate([(512, 512)]).step_operations * (1 / 2 + 5 / 16)
    assert counted.floating_point_operations == expected


@pytest.mark.parametrize("name", ["shampoo_adam", "soap_int8", "kl", "spectral", "adam"])
def test_the_mean_of_a_period_is_the_step_and_its_share_of_the_refresh(name: str) -> None:
    cost = estimate(mlp(), **_config(name))
    period = PERIOD if name in WITH_FACTORS else 1
    assert cost.operations_per_step == cost.step_operations + cost.refresh_operations / period
    assert (cost.refresh_operations > 0) == (name in WITH_FACTORS)


# --- what goes in ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": -1.0}, r"lr must be .*got -1\.0"),
        ({"learning_rate": 0.1}, "unknown hyperparameter 'learning_rate' = 0.1"),
        ({"max_preconditioner_dim": 1}, "max_preconditioner_dim must be an integer >= 2, got 1"),
        ({"state_dtype": "int2"}, "state_dtype must be one of .*'int2'"),
        ({"preconditioner": "soap", "exponent_override": 0.5}, "exponent_override=0.5 has no effect"),
        ({"betas": 0.9}, "betas must be a pair of numbers, got 0.9"),
        ({"dtype": torch.int64}, r"dtype must be real and floating-point, got torch\.int64"),
        ({"dtype": torch.complex64}, r"dtype must be real and floating-point, got torch\.complex64"),
    ],
)
def test_what_is_illegal_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimate([(4, 4)], **changes)


def test_a_negative_size_is_named() -> None:
    with pytest.raises(ValueError, match=r"sizes >= 0, got \(4, -1\)"):
        estimate([(4, 4), (4, -1)])


def test_one_shape_is_no_list_of_shapes() -> None:
    with pytest.raises(ValueError, match=r"one shape for each parameter, as .*, got \(4, 3\)"):
        estimate((4, 3))  # type: ignore[arg-type]


def test_no_parameters_cost_nothing() -> None:
    assert set(dataclasses.asdict(estimate([])).values()) == {0}


class _NoTensors(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        assert not isinstance(result, Tensor), f"{func} made a tensor"
        return result


@pytest.mark.parametrize("name", ["shampoo_int4", "soap", "kl", "spectral"])
def test_a_model_of_a_billion_parameters_is_estimated_at_once_without_a_tensor(name: str) -> None:
    shapes = llama_1b()
    assert sum(math.prod(shape) for shape in shapes) > 0.97e9
    begun = time.process_time()
    with _NoTensors():  # type: ignore[no-untyped-call]  # untyped in torch
        cost = estimate(shapes, dtype=torch.bfloat16, device="cuda", **member(name, max_preconditioner_dim=1024))
    # Measured: a few milliseconds.
    assert time.process_time() - begun < 1
    assert cost.state_bytes > 3.8e9  # at least one average of every parameter
