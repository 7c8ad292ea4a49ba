"""Parameters over ranks, stepped whole by their owners: the numbers of a single process, whatever the gradients do."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Placement, Replicate, Shard, distribute_tensor

from shampoo import Shampoo
from shampoo.state import buckets
from tests.support.shampoo import sharded
from tests.support.shampoo.members import MEMBERS, REPRESENTATIVES, member
from tests.support.trainers.ranks import WarmRanks

NUM_STEPS = 8
"""Two refreshes of everything."""
NUM_IRREGULAR_STEPS = 12
"""Three, and all that is irregular."""
Ranks = dict[int, WarmRanks]


@functools.cache
def _alone(name: str) -> list[Tensor]:
    return sharded.train(None, member(name, weight_decay=0.1), NUM_STEPS)


def _require_equal(
    ranks: Ranks,
    mesh: str,
    config: dict[str, Any],
    expected: list[Tensor],
    *,
    num_steps: int = NUM_STEPS,
    exact: bool = False,
    **options: Any,
) -> None:
    """On every rank, bit for bit or up to `sharded.TOLERANCE`."""
    run = functools.partial(sharded.train, **options)
    for found in ranks[sharded.num_ranks(mesh)].run(run, mesh, config, num_steps):
        if exact:
            for index, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
                torch.testing.assert_close(ours, theirs, rtol=0, atol=0, msg=f"parameter {index} on {mesh}")
        assert sharded.difference(found, expected) <= sharded.TOLERANCE


@functools.cache
def _alone_with_even_shapes(name: str) -> list[Tensor]:
    return sharded.train(None, member(name, weight_decay=0.1), NUM_STEPS, shapes=sharded.EVEN_SHAPES)


@pytest.mark.parametrize(
    ("mesh", "name"),
    [
        (meshes[number % 3], name)
        for number, name in enumerate(REPRESENTATIVES)
        for meshes in (("two", "hybrid", "two"), ("ddp four", "ddp two", "ddp two"))
    ],
)
def test_every_member_equals_one_process_bit_for_bit(ranks: Ranks, mesh: str, name: str) -> None:
    config = member(name, weight_decay=0.1)
    _require_equal(ranks, mesh, config, _alone_with_even_shapes(name), exact=True, shapes=sharded.EVEN_SHAPES)


WITHOUT_STATE = {"plain_sgd", "spectral_swan"}
"""Members whose matrices have none: there is nothing to share but a few vectors' averages."""


def _shares(mesh: str) -> dict[str, float]:
    """The share of each member's state that this rank has."""
    found = {}
    for name in MEMBERS.keys() - WITHOUT_STATE:
        params = [nn.Parameter(x) for x in sharded.placed(sharded.initial_weights(sharded.EVEN_SHAPES), mesh)]
        found[name] = Shampoo(params, **{**sharded.options(mesh), **member(name)}).share_of_state
    return found


@pytest.mark.parametrize("mesh", ["two", "ddp two"])
def test_two_ranks_share_the_state_of_every_member(ranks: Ranks, mesh: str) -> None:
    one, other = ranks[2].run(_shares, mesh)
    for name, share in one.items():
        assert 0.25 < share < 0.75, name
        assert share + other[name] == pytest.approx(1, abs=0.01), name


@pytest.mark.parametrize("name", ["shampoo_root_free", "spectral_swan", "spectral_rows", "spectral_rank"])
def test_so_do_options_that_make_another_method_of_a_member(ranks: Ranks, name: str) -> None:
    config = member(name, weight_decay=0.1)
    _require_equal(ranks, "two", config, _alone_with_even_shapes(name), exact=True, shapes=sharded.EVEN_SHAPES)


@pytest.mark.parametrize(
    ("mesh", "name"),
    [
        *((mesh, "shampoo_adam") for mesh in ("three", "four", "ddp three")),
        ("four", "soap"),
        ("three", "kl"),
        ("ddp three", "spectral"),
        ("three", "adam"),
    ],
)
def test_so_it_does_where_shards_are_uneven_or_empty(ranks: Ranks, mesh: str, name: str) -> None:
    _require_equal(ranks, mesh, member(name, weight_decay=0.1), _alone(name))


def test_products_in_bfloat16_differ_by_their_rounding(ranks: Ranks) -> None:
    # A batched product in bfloat16 depends on how many matrices are stacked; 1e-2 is some steps' worth of its 4e-3.
    config = member("kl_bfloat16_products", weight_decay=0.1)
    expected = sharded.train(None, config, NUM_STEPS)
    for found in ranks[2].run(sharded.train, "two", config, NUM_STEPS):
        assert sharded.difference(found, expected) < 1e-2


@pytest.mark.parametrize("weights", ["nearest", "stochastic", "master"])
@pytest.mark.parametrize("mesh", ["hybrid", "ddp two"])
def test_bfloat16_weights_take_the_same_steps(ranks: Ranks, mesh: str, weights: str) -> None:
    config = member("shampoo_adam", weight_decay=0.1, low_precision_weights=weights)
    expected = sharded.train(None, config, NUM_STEPS, dtype=torch.bfloat16)
    _require_equal(ranks, mesh, config, expected, dtype=torch.bfloat16)


@pytest.mark.parametrize("kind", ["l2", "independent"])
def test_every_weight_decay_takes_the_same_steps(ranks: Ranks, kind: str) -> None:
    config = member("shampoo_adam", weight_decay=0.1, weight_decay_type=kind)
    _require_equal(ranks, "two", config, sharded.train(None, config, NUM_STEPS))


def _irregular(step: int, index: int, G: Tensor) -> Tensor | None:
    """Some parameters never have a gradient, some join late, some pause, and some gradients are not finite."""
    if index == 1 or (index == 2 and step < 5) or (index == 0 and step == 7):
        return None
    if (step, index) in ((3, 0), (4, 3), (9, 7)):
        # In rows of one rank alone.
        G = G.clone()
        G[-1] = torch.inf if step == 4 else torch.nan
    return G


@pytest.mark.parametrize(
    ("mesh", "name"),
    [
        *((mesh, "shampoo_adam") for mesh in ("three", "hybrid", "ddp two")),
        ("ddp two", "soap"),
        *((mesh, "adam") for mesh in ("three", "ddp two")),
    ],
)
def test_gradients_that_are_missing_or_not_finite_mean_what_they_mean_in_one_process(
    ranks: Ranks, mesh: str, name: str
) -> None:
    config = member(name)
    expected = sharded.train(None, config, NUM_IRREGULAR_STEPS, change=_irregular)
    assert all(weights.isfinite().all() for weights in expected)
    _require_equal(ranks, mesh, config, expected, num_steps=NUM_IRREGULAR_STEPS, change=_irregular)


def test_ranks_that_own_nothing_take_part(ranks: Ranks) -> None:
    shapes = ((5, 3),)
    config = member("shampoo_adam")
    expected = sharded.train(None, config, NUM_STEPS, shapes=shapes)
    _require_equal(ranks, "four", config, expected, shapes=shapes)


def test_tensors_without_elements_and_scalars_step_too(ranks: Ranks) -> None:
    shapes = ((0, 4), (1,), (2, 2), (4, 0))
    config = member("shampoo_adam")
    expected = sharded.train(None, config, 3, shapes=shapes)
    for mesh in ("four", "ddp four"):
        for found in ranks[4].run(functools.partial(sharded.train, shapes=shapes), mesh, config, 3):
            assert sharded.close(found, expected)


def _on_other_layouts(kind: str, config: dict[str, Any]) -> tuple[list[Tensor], int]:
    """Four ranks: the weights after training, and how many parameters this rank owns."""
    square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    line = init_device_mesh("cpu", (4,))
    layouts: dict[str, list[tuple[DeviceMesh, list[Placement]]]] = {
        "cut over the outer dimension": [(square, [Shard(0), Replicate()])],
        "replicas alone": [(square, [Replicate(), Replicate()])],
        "one line of replicas": [(line, [Replicate()])],
        "mixed": [(line, [Shard(0)]), (square, [Replicate(), Shard(0)]), (square, [Replicate(), Replicate()])],
    }

    def placed(tensor: Tensor, index: int) -> Tensor:
        mesh, placements = layouts[kind][index % len(layouts[kind])]
        return distribute_tensor(tensor, mesh, placements)

    params = [nn.Parameter(placed(x, index)) for index, x in enumerate(sharded.initial_weights())]
    optimizer = Shampoo(params, **config)
    for step in range(NUM_STEPS):
        for index, param in enumerate(params):
            param.grad = placed(sharded.gradient(index, step, sharded.SHAPES[index]), index)
        optimizer.step()
    return [sharded.whole(param) for param in params], sum(bool(optimizer.state[param]) for param in params)


@pytest.mark.parametrize("kind", ["cut over the outer dimension", "replicas alone", "one line of replicas", "mixed"])
def test_other_meshes_and_mixtures_of_them_are_shared_too(ranks: Ranks, kind: str) -> None:
    config = member("shampoo_adam", weight_decay=0.1)
    results = ranks[4].run(_on_other_layouts, kind, config)
    for found, _ in results:
        assert sharded.close(found, _alone("shampoo_adam"))
    assert sum(num_owned for _, num_owned in results) >= len(sharded.SHAPES)


def _where_the_host_cannot_read(mesh: str | None, config: dict[str, Any]) -> list[Tensor]:
    """Steps as where reading a number would stop a queue of work, as on a GPU."""
    readable, buckets.READABLE_DEVICES = buckets.READABLE_DEVICES, frozenset()
    try:
        return sharded.train(mesh, config, NUM_IRREGULAR_STEPS, change=_irregular)
    finally:
        buckets.READABLE_DEVICES = readable


@pytest.mark.parametrize("mesh", ["two", "hybrid"])
def test_so_it_is_where_the_device_alone_knows_what_is_finite(ranks: Ranks, mesh: str) -> None:
    config = member("shampoo_adam")
    expected = _where_the_host_cannot_read(None, config)
    for found in ranks[sharded.num_ranks(mesh)].run(_where_the_host_cannot_read, mesh, config):
        # Products with a mask round otherwise at the end of a vector register.
        assert sharded.close(found, expected)
