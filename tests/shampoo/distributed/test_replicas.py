"""Ranks that hold all parameters, as under DDP, and share the work on them: how they may, and what it costs."""

from __future__ import annotations

import copy
import functools
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from shampoo import Shampoo
from shampoo.distributed import placement
from shampoo.state import buckets
from tests.support.shampoo import sharded
from tests.support.shampoo.members import member
from tests.support.trainers.ranks import WarmRanks

Ranks = dict[int, WarmRanks]
NUM_STEPS = 8
_SHARES = {2: (4.0, -2.0), 4: (4.0, 0.0, 0.0, 0.0)}
LOSSLESS = {"distributed": "lossless"}


@functools.cache
def _alone(name: str) -> list[Tensor]:
    return sharded.train(None, member(name), NUM_STEPS)


def _with_own_gradients(config: dict[str, Any], missing: bool) -> list[Tensor]:
    """The gradients of a single process are the means of the ranks'; those of some parameters one rank alone has."""
    params = [nn.Parameter(x) for x in sharded.initial_weights()]
    optimizer = Shampoo(params, **config, distributed="lossless", reduce_gradients=True)
    rank, size = dist.get_rank(), dist.get_world_size()
    for step in range(NUM_STEPS):
        for index, param in enumerate(params):
            G = sharded.gradient(index, step, sharded.SHAPES[index])
            if missing and index % 2 == 0:
                param.grad = size * G if rank == 0 else None
            else:
                # Their mean is exact: Shampoo makes much of a last bit.
                param.grad = G * _SHARES[size][rank]
        optimizer.step()
    return [param.detach() for param in params]


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", ["shampoo_adam", "adam"])
def test_owners_average_gradients_that_are_each_ranks_own(ranks: Ranks, name: str, missing: bool) -> None:
    for num_ranks in (2, 4):
        for found in ranks[num_ranks].run(_with_own_gradients, member(name), missing):
            assert sharded.close(found, _alone(name))


def _with_a_gradient_that_one_rank_cannot_use() -> tuple[list[Tensor], int]:
    params = [nn.Parameter(x) for x in sharded.initial_weights()]
    optimizer = Shampoo(params, **member("shampoo_adam"), distributed="lossless", reduce_gradients=True)
    for index, param in enumerate(params):
        param.grad = sharded.gradient(index, 0, sharded.SHAPES[index])
    if dist.get_rank() == 1:
        assert params[0].grad is not None
        params[0].grad[0, 0] = torch.inf
    optimizer.step()
    skipped = sum(int(state["num_skipped"]) > 0 for state in optimizer.state.values() if state)
    return [param.detach() for param in params], skipped


def test_a_gradient_that_is_not_finite_on_one_rank_stops_all_of_its_parameter(ranks: Ranks) -> None:
    before = sharded.initial_weights()
    results = ranks[2].run(_with_a_gradient_that_one_rank_cannot_use)
    for found, _ in results:
        assert torch.equal(found[0], before[0])
        assert all(not torch.equal(found[index], before[index]) for index in range(1, len(before)))
    assert sum(skipped for _, skipped in results) >= 1


@pytest.mark.parametrize("mesh", ["ddp two", "ddp three", "two", "hybrid"])
def test_weights_may_come_back_in_a_lower_precision_and_are_the_same_everywhere(ranks: Ranks, mesh: str) -> None:
    errors = {}
    for dtype in ("bfloat16", "float16"):
        config = {**member("shampoo_adam"), "communication_dtype": dtype}
        results = ranks[sharded.num_ranks(mesh)].run(sharded.train, mesh, config, NUM_STEPS)
        assert all(torch.equal(a, b) for found in results for a, b in zip(found, results[0], strict=True))
        errors[dtype] = sharded.difference(results[0], _alone("shampoo_adam"))
    # A step of 0.01 rounded to 8 or 11 bits, each time, and what follows from it.
    assert sharded.TOLERANCE < errors["bfloat16"] < 5e-3
    assert errors["float16"] < errors["bfloat16"] / 2


def _state_bytes(options: dict[str, Any]) -> tuple[list[Tensor], int]:
    params = [nn.Parameter(x) for x in sharded.initial_weights()]
    optimizer = Shampoo(params, **member("shampoo_adam"), **options)
    for step in range(NUM_STEPS):
        for index, param in enumerate(params):
            param.grad = sharded.gradient(index, step, sharded.SHAPES[index])
        optimizer.step()
    return [param.detach() for param in params], sharded.state_bytes(optimizer)


def test_groups_of_ranks_work_on_their_own(ranks: Ranks) -> None:
    whole = ranks[4].run(_state_bytes, {})[0][1]
    results = ranks[4].run(_state_bytes, {**LOSSLESS, "num_ranks_per_group": 2})
    assert all(sharded.close(found, _alone("shampoo_adam")) for found, _ in results)
    sizes = [size for _, size in results]
    assert sizes[:2] == sizes[2:]
    assert max(sizes) < 0.6 * whole
    assert ranks[4].run(_refused)[0] == "num_ranks_per_group=3 must divide the number of ranks, 4"


def _refused() -> str:
    with pytest.raises(ValueError, match="num_ranks_per_group") as refusal:
        Shampoo([nn.Parameter(torch.ones(3, 3))], distributed="lossless", num_ranks_per_group=3)
    return str(refusal.value)


def _held(shapes: list[tuple[int, ...]]) -> tuple[int, int]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "distributed='lossless' shares nothing")
        optimizer = Shampoo([nn.Parameter(torch.ones(shape)) for shape in shapes], distributed="lossless")
    return sharded.state_bytes(optimizer), len(optimizer._allocation.plan.settled.owners)


def _num_shared_beside_one_that_is_not() -> int:
    large, *small = (nn.Parameter(torch.ones(shape)) for shape in ((128, 128), *[(8, 8)] * 8))
    groups: list[dict[str, Any]] = [{"params": [large], "num_ranks_per_group": 1}, {"params": small}]
    return len(Shampoo(groups, distributed="lossless")._allocation.plan.settled.owners)


def _warned(options: dict[str, Any]) -> tuple[list[str], float]:
    """Warnings and share of the state of a model whose largest layer is most of it."""
    params = [nn.Parameter(torch.ones(shape)) for shape in ((7, 3), (252, 37), (37, 41), (41, 10))]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer = Shampoo(params, distributed="lossless", **options)
    return [str(one.message) for one in caught], optimizer.share_of_state


def test_ranks_that_share_nothing_are_told_why_and_what_to_do(ranks: Ranks) -> None:
    (first, share), *others = ranks[3].run(_warned, {})
    assert share == 1
    assert others == [([], 1), ([], 1)]
    (message,) = first
    assert "each of 3 ranks holds all of the state" in message
    assert "one block (252, 37) of a parameter (252, 37) has 92% of the state and 96% of the work" in message
    # What it says helps, and is not said of what has been asked for.
    for options in ({"num_ranks_per_group": 3}, {"max_preconditioner_dim": 64}):
        found = ranks[3].run(_warned, options)
        assert [messages for messages, _ in found] == [[]] * 3
        assert 1 <= sum(share for _, share in found) < 1.01
    assert max(share for _, share in found) < 0.5
    assert ranks[3].run(_warned, {"num_ranks_per_group": 1}) == [([], 1)] * 3


def test_ranks_that_would_make_no_share_smaller_are_not_asked(ranks: Ranks) -> None:
    # One block: with any owner somebody has all of it, so nothing needs to be sent.
    alone = _held([(32, 32)])[0]
    assert ranks[4].run(_held, [(32, 32)]) == [(alone, 0)] * 4
    # Two: pairs of ranks.
    assert [size for size, _ in ranks[4].run(_held, [(32, 32)] * 2)] == [alone] * 4
    assert all(num == 8 for _, num in ranks[4].run(_held, [(32, 32)] * 8))
    # Nor does what every rank is told to have for itself keep the rest from being shared.
    assert ranks[4].run(_num_shared_beside_one_that_is_not) == [8] * 4


def _in_small_rounds(mesh: str, config: dict[str, Any]) -> tuple[list[Tensor], int]:
    honest, placement.ROUND_BYTES = placement.ROUND_BYTES, 600
    try:
        params = [nn.Parameter(x) for x in sharded.placed(sharded.initial_weights(), mesh)]
        optimizer = Shampoo(params, **config, **sharded.options(mesh))
        for step in range(NUM_STEPS):
            for index, param in enumerate(params):
                param.grad = sharded.like(sharded.gradient(index, step, sharded.SHAPES[index]), param)
            optimizer.step()
    finally:
        placement.ROUND_BYTES = honest
    return [sharded.whole(param) for param in params], len(optimizer._allocation.plan.rounds)


@pytest.mark.parametrize(
    ("mesh", "name"), [*((mesh, "shampoo_adam") for mesh in ("two", "hybrid", "ddp two")), ("two", "soap")]
)
def test_a_step_in_many_rounds_is_the_same(ranks: Ranks, mesh: str, name: str) -> None:
    for found, num_rounds in ranks[sharded.num_ranks(mesh)].run(_in_small_rounds, mesh, member(name)):
        assert num_rounds >= 3
        assert sharded.close(found, _alone(name))


def _copied(mesh: str) -> tuple[list[Tensor], list[Tensor]]:
    params = [nn.Parameter(x) for x in sharded.placed(sharded.initial_weights(), mesh)]
    optimizer = Shampoo(params, **member("shampoo_adam"), **sharded.options(mesh))

    def train(params: list[nn.Parameter], optimizer: Shampoo, steps: range) -> list[Tensor]:
        for step in steps:
            for index, param in enumerate(params):
                param.grad = sharded.like(sharded.gradient(index, step, sharded.SHAPES[index]), param)
            optimizer.step()
            optimizer.zero_grad()
        return [sharded.whole(param) for param in params]

    train(params, optimizer, range(3))
    again, copied = copy.deepcopy((params, optimizer))
    return train(params, optimizer, range(3, 6)), train(again, copied, range(3, 6))


@pytest.mark.parametrize("mesh", ["ddp two", "two"])
def test_a_copy_goes_on_alike(ranks: Ranks, mesh: str) -> None:
    for ours, theirs in ranks[2].run(_copied, mesh):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 32)
        self.unused = nn.Linear(32, 32)
        self.second = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.second(torch.tanh(self.first(x)))
        return output


def _trained_by_ddp(options: dict[str, Any]) -> list[Tensor]:
    torch.manual_seed(0)
    model = _Model()
    inputs, targets = torch.randn(10, 24, 12), torch.randn(10, 24, 4)
    replica = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = Shampoo(model.parameters(), lr=0.01, max_preconditioner_dim=8, **options)
    num_rows = 24 // dist.get_world_size()
    rows = slice(dist.get_rank() * num_rows, (dist.get_rank() + 1) * num_rows)
    for x, y in zip(inputs, targets, strict=True):
        optimizer.zero_grad()
        nn.functional.mse_loss(replica(x[rows]), y[rows]).backward()
        optimizer.step()
    return [param.detach().clone() for param in model.parameters()]


def test_it_trains_a_model_under_ddp_with_a_layer_that_is_not_used(ranks: Ranks) -> None:
    for num_ranks in (2, 4):
        # By every rank, and shared: the averaged gradients are the same.
        expected = ranks[num_ranks].run(_trained_by_ddp, {})[0]
        for found in ranks[num_ranks].run(_trained_by_ddp, LOSSLESS):
            assert sharded.close(found, expected)


def test_in_one_process_it_is_the_optimizer_itself() -> None:
    config = {**member("shampoo_adam"), **LOSSLESS, "communication_dtype": "bfloat16"}
    found = sharded.train(None, config, NUM_STEPS)
    assert all(torch.equal(a, b) for a, b in zip(found, _alone("shampoo_adam"), strict=True))


def _in_a_compiled_step(mesh: str | None, is_compiled: bool) -> list[Tensor]:
    params = [nn.Parameter(x) for x in sharded.placed(sharded.initial_weights(), mesh)]
    optimizer = Shampoo(params, **member("shampoo_adam"), **sharded.options(mesh))

    def train_step() -> None:
        optimizer.step()
        optimizer.zero_grad()

    step = torch.compile(train_step, backend="eager") if is_compiled else train_step
    for number in range(5):
        for index, param in enumerate(params):
            param.grad = sharded.like(sharded.gradient(index, number, sharded.SHAPES[index]), param)
        step()
    return [sharded.whole(param) for param in params]


@pytest.mark.parametrize("mesh", ["ddp two", "two"])
def test_a_compiled_training_step_may_contain_it(ranks: Ranks, mesh: str) -> None:
    expected = ranks[2].run(_in_a_compiled_step, mesh, False)[0]
    for found in ranks[2].run(_in_a_compiled_step, mesh, True):
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def _copied_after_a_group_was_added() -> tuple[list[Tensor], list[Tensor], float]:
    # One block first, which every rank steps; then enough of them to share.
    params = [nn.Parameter(torch.ones(32, 32)), *(nn.Parameter(x) for x in sharded.initial_weights())]
    config = member("shampoo_adam", max_preconditioner_dim=32)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "distributed='lossless' shares nothing")
        optimizer = Shampoo(params[:1], **config, distributed="lossless")
    optimizer.add_param_group({"params": params[1:]})

    def train(params: list[nn.Parameter], optimizer: Shampoo) -> list[Tensor]:
        for step in range(3):
            for index, param in enumerate(params):
                param.grad = sharded.gradient(index, step, tuple(param.shape))
            optimizer.step()
        return [param.detach() for param in params]

    train(params, optimizer)
    again, copied = copy.deepcopy((params, optimizer))
    return train(params, optimizer), train(again, copied), copied.share_of_state


def test_a_group_is_shared_beside_one_that_is_not_and_a_copy_shares_as_the_original_does(ranks: Ranks) -> None:
    alone, _, _ = _copied_after_a_group_was_added()
    for num_ranks in (2, 3):
        for ours, theirs, share in ranks[num_ranks].run(_copied_after_a_group_was_added):
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
            assert sharded.close(ours, alone)
            assert share < 0.9


@pytest.mark.parametrize("mesh", ["ddp two", "two"])
def test_float64_is_sent_as_it_is(ranks: Ranks, mesh: str) -> None:
    config = member("shampoo_adam")
    train = functools.partial(sharded.train, shapes=sharded.EVEN_SHAPES, dtype=torch.float64)
    expected = train(None, config, 5)
    for found in ranks[2].run(train, mesh, config, 5):
        # A change in float32 would show at 1e-10.
        assert sharded.difference(found, expected) < 1e-12


def _missing_where_the_host_cannot_read() -> list[Tensor]:
    readable, buckets.READABLE_DEVICES = buckets.READABLE_DEVICES, frozenset()
    try:
        return _with_own_gradients(member("shampoo_adam"), True)
    finally:
        buckets.READABLE_DEVICES = readable


def test_gradients_that_one_rank_has_move_all_of_a_parameter_on_any_device(ranks: Ranks) -> None:
    for found in ranks[2].run(_missing_where_the_host_cannot_read):
        assert sharded.close(found, _alone("shampoo_adam"))


def _left_by_diagnostics() -> tuple[int, list[bool]]:
    honest, placement.ROUND_BYTES = placement.ROUND_BYTES, 600
    try:
        params = [nn.Parameter(x) for x in sharded.initial_weights()]
        optimizer = Shampoo(params, **member("shampoo_adam"), distributed="lossless", communication_dtype="bfloat16")
    finally:
        placement.ROUND_BYTES = honest
    for index, param in enumerate(params):
        param.grad = sharded.gradient(index, 0, sharded.SHAPES[index])
    versions = [param._version for param in params]
    optimizer.step()
    moved = [param._version > before for param, before in zip(params, versions, strict=True)]
    optimizer.diagnostics()
    exchanges = optimizer._allocation.plan.rounds.exchanges
    return sum(len(exchange._return_path._before) for exchange in exchanges), moved


def test_nothing_is_left_behind_and_autograd_knows_of_every_step(ranks: Ranks) -> None:
    for num_left, moved in ranks[2].run(_left_by_diagnostics):
        assert num_left == 0
        assert all(moved)
    for found in ranks[2].run(_versions_of_whole_parameters):
        assert all(found)


def _versions_of_whole_parameters() -> list[bool]:
    params = [nn.Parameter(torch.ones(8, 8)) for _ in range(16)]
    optimizer = Shampoo(params, distributed="lossless", num_ranks_per_group=2)
    before = [param._version for param in params]
    for index, param in enumerate(params):
        param.grad = sharded.gradient(index, 0, (8, 8))
    optimizer.step()
    return [param._version > version for param, version in zip(params, before, strict=True)]
