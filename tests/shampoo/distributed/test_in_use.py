"""Use of parameters over ranks, around their steps: groups, closures, changes from outside, failures, numbers."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from shampoo import RefreshFailed, Shampoo, cost, memory
from tests.support.shampoo import sharded
from tests.support.shampoo.members import member
from tests.support.trainers.ranks import WarmRanks, rank_context
from tests.support.waiting import PATIENCE_SECONDS

Ranks = dict[int, WarmRanks]
NUM_STEPS = 8


def _params(mesh: str | None, shapes: Any = sharded.SHAPES) -> list[nn.Parameter]:
    return [nn.Parameter(x) for x in sharded.placed(sharded.initial_weights(shapes), mesh)]


def _set_gradients(params: list[nn.Parameter], step: int) -> None:
    for index, param in enumerate(params):
        param.grad = sharded.like(sharded.gradient(index, step, tuple(param.shape)), param)


def _weights(params: list[nn.Parameter]) -> list[Tensor]:
    return [sharded.whole(param) for param in params]


def _same(ranks: Ranks, mesh: str, function: Any, *arguments: Any) -> None:
    """A function of a mesh, or of None for a single process, gives the same everywhere."""
    expected = function(None, *arguments)
    for found in ranks[sharded.num_ranks(mesh)].run(function, mesh, *arguments):
        assert sharded.close(found, expected)


def _with_another_group(mesh: str | None, name: str) -> list[Tensor]:
    params = _params(mesh)
    optimizer = Shampoo(params[:4], **member(name), **sharded.options(mesh))
    for step in range(NUM_STEPS):
        if step == 3:
            optimizer.add_param_group({"params": params[4:], "lr": 0.003})
        _set_gradients(params, step)
        optimizer.step()
    return _weights(params)


@pytest.mark.parametrize(
    ("mesh", "name"), [*((mesh, "shampoo_adam") for mesh in ("two", "hybrid", "ddp three")), ("ddp three", "soap")]
)
def test_a_group_that_is_added_later_takes_part(ranks: Ranks, mesh: str, name: str) -> None:
    _same(ranks, mesh, _with_another_group, name)


def _in_the_place_of_others(mesh: str | None, name: str) -> list[Tensor]:
    optimizer, params = Shampoo(_params(None), **member(name)), _params(mesh)
    optimizer.param_groups[0]["params"] = params  # as Accelerate does once it has sharded the model
    for step in range(NUM_STEPS):
        _set_gradients(params, step)
        optimizer.step()
    return _weights(params)


@pytest.mark.parametrize("mesh", ["two", "hybrid"])
def test_sharded_parameters_in_the_place_of_others_are_trained(ranks: Ranks, mesh: str) -> None:
    _same(ranks, mesh, _in_the_place_of_others, "shampoo_adam")


def _with_thawed_parameters(mesh: str | None, name: str) -> list[Tensor]:
    params = _params(mesh)
    for param in params[4:]:
        param.requires_grad_(False)
    optimizer = Shampoo(params, **member(name), **sharded.options(mesh))
    before = sharded.state_bytes(optimizer)
    assert before == sharded.state_bytes(Shampoo(params[:4], **member(name), **sharded.options(mesh)))
    for step in range(NUM_STEPS):
        if step == 3:
            for param in params[4:]:
                param.requires_grad_(True)
        _set_gradients(params, step)
        for param in params:
            param.grad = param.grad if param.requires_grad else None
        optimizer.step()
    return _weights(params)


@pytest.mark.parametrize("mesh", ["two", "ddp three"])
def test_parameters_that_are_thawed_later_take_part(ranks: Ranks, mesh: str) -> None:
    _same(ranks, mesh, _with_thawed_parameters, "shampoo_adam")


def _with_closures(mesh: str | None) -> list[Tensor]:
    params = _params(mesh)
    optimizer = Shampoo(params, **member("shampoo_adam"), **sharded.options(mesh))
    for step in range(NUM_STEPS):

        def closure(step: int = step) -> float:
            assert torch.is_grad_enabled()
            _set_gradients(params, step)
            return 7.0

        assert optimizer.step(closure) == 7.0
    return _weights(params)


@pytest.mark.parametrize("mesh", ["three", "ddp two"])
def test_closures_are_evaluated_on_every_rank(ranks: Ranks, mesh: str) -> None:
    _same(ranks, mesh, _with_closures)


def _with_changes_from_outside(mesh: str | None) -> list[Tensor]:
    params = _params(mesh)
    optimizer = Shampoo(params, **member("shampoo_adam", weight_decay=0.1), **sharded.options(mesh))
    for step in range(NUM_STEPS):
        if step == 4:
            with torch.no_grad():
                for param in params:
                    param.mul_(0.5)
            optimizer.param_groups[0]["lr"] = 0.004
        _set_gradients(params, step)
        optimizer.step()
    return _weights(params)


@pytest.mark.parametrize("mesh", ["hybrid", "ddp two"])
def test_weights_that_are_changed_from_outside_are_not_overwritten_by_an_older_copy(ranks: Ranks, mesh: str) -> None:
    _same(ranks, mesh, _with_changes_from_outside)


def _beside_plain_and_frozen_parameters(mesh: str | None) -> list[Tensor]:
    params = _params(mesh)
    params[1:3] = _params(None)[1:3]
    params[3].requires_grad_(False)
    optimizer = Shampoo(params, **member("shampoo_adam"))
    for step in range(NUM_STEPS):
        _set_gradients(params, step)
        params[3].grad = None
        optimizer.step()
    return _weights(params)


def test_plain_parameters_are_stepped_by_every_rank_beside_them(ranks: Ranks) -> None:
    _same(ranks, "two", _beside_plain_and_frozen_parameters)


def _where_one_rank_has_no_gradient(mesh: str) -> tuple[list[Tensor], list[Tensor]]:
    params, expected = _params(mesh), _params(mesh)
    optimizers = Shampoo(params, **member("shampoo_adam")), Shampoo(expected, **member("shampoo_adam"))
    for step in range(NUM_STEPS):
        _set_gradients(params, step)
        _set_gradients(expected, step)
        if dist.get_rank() == 1:
            params[0].grad = None
            assert isinstance(expected[0].grad, DTensor)
            expected[0].grad.to_local().zero_()
        for optimizer in optimizers:
            optimizer.step()
    return _weights(params), _weights(expected)


def test_a_gradient_that_one_rank_lacks_is_zero_in_its_rows(ranks: Ranks) -> None:
    for found, expected in ranks[2].run(_where_one_rank_has_no_gradient, "two"):
        assert sharded.close(found, expected)


def _failure(mesh: str) -> str:
    params = _params(mesh)
    optimizer = Shampoo(params, **member("shampoo_adam", max_failed_refreshes=0), **sharded.options(mesh))
    _set_gradients(params, 0)
    optimizer.step()
    # Of one block, which one rank owns.
    if "factor0.0" in optimizer.state[params[3]]:
        optimizer.state[params[3]]["factor0.0"].fill_(torch.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for step in range(1, 9):
            _set_gradients(params, step)
            try:
                optimizer.step()
            except RefreshFailed as error:
                return f"step {step}: {error}"
    return "none"


@pytest.mark.parametrize("mesh", ["three", "ddp three"])
def test_a_refresh_that_fails_on_its_owner_raises_at_the_same_step_on_all_ranks(ranks: Ranks, mesh: str) -> None:
    messages = ranks[3].run(_failure, mesh)
    assert all(message.startswith(messages[0][:7]) for message in messages)
    assert messages[0] != "none"
    assert any("of a parameter (17, 9)" in message for message in messages)


def _sizes(mesh: str) -> tuple[int, int]:
    params = _params(mesh, ((64, 48),) * 12 + ((48, 64),) * 12 + ((64,),) * 12)
    optimizer = Shampoo(params, **sharded.options(mesh))
    _set_gradients(params, 0)
    optimizer.step()
    held = {id(x.untyped_storage()): x.untyped_storage().nbytes() for x in _whole_tensors(optimizer)}
    return sharded.state_bytes(optimizer), sum(held.values())


def _whole_tensors(optimizer: Shampoo) -> list[Tensor]:
    return [tensor for shares in optimizer._allocation._shares.values() for share in shares for tensor in share.tensors]


@pytest.mark.parametrize(
    ("mesh", "num_ranks"), [("two", 2), ("three", 3), ("four", 4), ("hybrid", 4), ("ddp two", 2), ("ddp four", 4)]
)
def test_every_rank_holds_its_share_of_the_state_and_no_whole_parameter(
    ranks: Ranks, mesh: str, num_ranks: int
) -> None:
    total = cost.estimate(((64, 48),) * 12 + ((48, 64),) * 12 + ((64,),) * 12).state_bytes
    sizes = ranks[num_ranks].run(_sizes, mesh)
    # Every owner of a part counts the gradients that were not finite.
    assert total <= sum(size for size, _ in sizes) <= total + 36 * num_ranks * 8
    assert max(size for size, _ in sizes) <= 1.1 * total / num_ranks
    # What a step has filled is one element again.
    assert max(held for _, held in sizes) <= 4 * 36


def _on_a_small_machine(mesh: str | None, spare_bytes: int, directory: Path) -> str:
    # The fault that is injected: a machine with so much memory left. A file for each rank, as all write theirs at once.
    meminfo = directory / f"meminfo-{os.getpid()}"
    meminfo.write_text(f"MemAvailable: {spare_bytes >> 10} kB\n")
    honest = memory._MEMINFO, memory._CONTROL_GROUP
    memory._MEMINFO, memory._CONTROL_GROUP = meminfo, directory
    try:
        Shampoo(_params(mesh, ((200, 200),) * 8))
    except MemoryError as error:
        return str(error)
    finally:
        memory._MEMINFO, memory._CONTROL_GROUP = honest
    return "fits"


def test_what_a_rank_will_own_must_fit_and_no_more(ranks: Ranks, tmp_path: Path) -> None:
    # State, scratch memory, and whole weights and gradients with their buffers.
    one = cost.estimate([(200, 200)])
    needed = 4 * one.state_bytes + one.scratch_bytes + 4 * 4 * 200 * 200 * 4
    assert "8 parameters" in _on_a_small_machine(None, needed + 2048, tmp_path)
    assert ranks[2].run(_on_a_small_machine, "two", needed + 2048, tmp_path) == ["fits"] * 2
    for message in ranks[2].run(_on_a_small_machine, "two", needed - 2048, tmp_path):
        assert "for its state of 4 parameters" in message


def _diagnosed(mesh: str | None, distributed: str = "auto") -> dict[str, Any]:
    params = _params(mesh)
    optimizer = Shampoo(params, **{**member("shampoo_adam"), "distributed": distributed, **sharded.options(mesh)})
    for step in range(NUM_STEPS):
        _set_gradients(params, step)
        if step == 2:
            assert params[0].grad is not None
            params[0].grad = params[0].grad * torch.nan
        optimizer.step()
    before = _weights(params)
    found = dataclasses.asdict(optimizer.diagnostics())
    assert all(torch.equal(a, b) for a, b in zip(before, _weights(params), strict=True))
    return found


@pytest.mark.parametrize("mesh", ["two", "hybrid", "ddp two"])
def test_diagnostics_are_those_of_a_single_process_on_every_rank(ranks: Ranks, mesh: str) -> None:
    expected = _diagnosed(None)
    assert expected["num_skipped"] == 1
    for found in ranks[sharded.num_ranks(mesh)].run(_diagnosed, mesh):
        assert found == pytest.approx(expected, rel=1e-3)


def test_diagnostics_of_shards_alone_are_the_same_on_every_rank(ranks: Ranks) -> None:
    results = ranks[4].run(_diagnosed, "hybrid", "local")
    assert all(found == results[0] for found in results)
    assert results[0]["num_skipped"] == 2  # both shards of a parameter, counted once for all replicas


def _refused() -> list[str]:
    params = _params("two")
    optimizer = Shampoo(params, distributed="lossless")
    messages = []
    optimizer.param_groups[0]["distributed"] = "local"
    plain = {"params": _params(None), "distributed": "local"}
    attempts: list[Callable[[], None]] = [optimizer.step, lambda: optimizer.add_param_group(plain)]
    for attempt in attempts:
        with pytest.raises(ValueError, match="distributed") as refusal:
            attempt()
        messages.append(str(refusal.value))
    return messages


def test_the_mode_cannot_be_changed_and_needs_sharded_parameters(ranks: Ranks) -> None:
    for messages in ranks[2].run(_refused):
        assert "distributed == 'local' changed from False to True" in messages[0]
        assert "distributed='local' has no effect: none of 9 parameters is a DTensor" in messages[1]


def _gradient_on_another_layout() -> str:
    params = _params("two")
    optimizer = Shampoo(params)
    _set_gradients(params, 0)
    assert isinstance(params[0].grad, DTensor)
    params[0].grad = params[0].grad.redistribute(placements=[torch.distributed.tensor.Replicate()])
    with pytest.raises(RuntimeError, match="redistribute it") as refusal:
        optimizer.step()
    return str(refusal.value)


def test_a_gradient_that_lies_otherwise_than_its_parameter_is_refused(ranks: Ranks) -> None:
    assert all("parameter of shape (24, 10)" in message for message in ranks[2].run(_gradient_on_another_layout))


def _alone_in_the_step(rank: int, mesh: str, meeting_point: Path, connection: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2, init_method=f"file://{meeting_point}")
    params = _params(mesh)
    optimizer = Shampoo(params, **sharded.options(mesh))
    _set_gradients(params, 0)
    dist.barrier()
    if rank == 1:
        return  # ends, as a rank that is killed
    try:
        optimizer.step()
    except RuntimeError as error:
        connection.send(str(error))


@pytest.mark.processes
@pytest.mark.parametrize(
    ("mesh", "purpose"),
    [
        ("two", "the collection of gradients over DeviceMesh("),
        ("ddp two", "the return of weights to replicas over 2 replicas failed"),
    ],
)
def test_a_rank_that_ends_in_the_step_is_an_error_of_the_others_which_names_rank_and_purpose(
    tmp_path: Path, mesh: str, purpose: str
) -> None:
    context = rank_context()
    ours, theirs = context.Pipe()
    processes = [
        context.Process(target=_alone_in_the_step, args=(rank, mesh, tmp_path / "meeting_point", theirs))
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    assert ours.poll(PATIENCE_SECONDS), "the other rank still waits"
    assert ours.recv().startswith(f"rank 0: {purpose}")
    for process in processes:
        process.join(PATIENCE_SECONDS)
