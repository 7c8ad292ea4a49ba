"""The state of ranks: what each of them saves, and how ranks of another number go on from it."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.tensor import DTensor

from shampoo import Shampoo
from tests.support.shampoo import sharded
from tests.support.shampoo.members import member
from tests.support.trainers.ranks import WarmRanks

Ranks = dict[int, WarmRanks]
BEFORE, AFTER = range(6), range(6, 10)


def _new(mesh: str | None, config: dict[str, Any]) -> tuple[list[nn.Parameter], Shampoo]:
    params = [nn.Parameter(x) for x in sharded.placed(sharded.initial_weights(), mesh)]
    groups: list[dict[str, Any]] = [{"params": params[:5]}, {"params": params[5:], "lr": 0.003}]
    optimizer = Shampoo(groups, **{**sharded.options(mesh), **config})
    # That of all ranks is what one process has, and none has nearly all of it; without state there is nothing to share.
    assert mesh is None or config.get("preconditioner") == "none" or optimizer.share_of_state < 0.75
    return params, optimizer


def _train(params: list[nn.Parameter], optimizer: Shampoo, steps: range) -> list[Tensor]:
    for step in steps:
        for index, param in enumerate(params):
            param.grad = sharded.like(sharded.gradient(index, step, sharded.SHAPES[index]), param)
        optimizer.step()
    return [sharded.whole(param) for param in params]


def _parts(params: list[nn.Parameter], optimizer: Shampoo) -> dict[str, Any]:
    return {
        "model": {str(index): param.detach() for index, param in enumerate(params)},
        "optimizer": optimizer.distributed_state_dict(),
    }


def _saved(mesh: str | None, config: dict[str, Any], path: Path) -> list[Tensor]:
    params, optimizer = _new(mesh, config)
    _train(params, optimizer, BEFORE)
    optimizer.param_groups[1]["lr"] = 0.002
    dcp.save(_parts(params, optimizer), checkpoint_id=path, no_dist=mesh is None)
    return _train(params, optimizer, AFTER)


def _loaded(mesh: str | None, config: dict[str, Any], path: Path) -> list[Tensor]:
    params, optimizer = _new(mesh, config)
    # Weights and state that are to be overwritten.
    _train(params, optimizer, range(100, 101))
    state = _parts(params, optimizer)
    dcp.load(state, checkpoint_id=path, no_dist=mesh is None)
    optimizer.load_distributed_state_dict(state["optimizer"])
    assert optimizer.param_groups[1]["lr"] == 0.002
    return _train(params, optimizer, AFTER)


def _on(ranks: Ranks, mesh: str | None, function: Any, *arguments: Any) -> list[list[Tensor]]:
    if mesh is None:
        return [function(None, *arguments)]
    return ranks[sharded.num_ranks(mesh)].run(function, mesh, *arguments)


@pytest.mark.filterwarnings("ignore:torch.distributed is:UserWarning")
@pytest.mark.parametrize(
    ("name", "saving", "loading"),
    # Each way, and each layout of the state in shards and in replicas: which blocks go where knows no member.
    [
        ("shampoo_adam", "two", None),
        ("kl", None, "four"),
        ("soap", "two", "hybrid"),
        ("spectral_rank", "two", "hybrid"),
        ("soap_int8", "hybrid", "three"),
        ("kl", "four", "ddp two"),
        ("kl_int4", "ddp three", "ddp four"),
        ("soap", "ddp two", None),
        ("soap_int8", "ddp two", None),
        ("spectral_rank", None, "ddp three"),
    ],
)
def test_ranks_of_another_number_go_on_where_others_stopped(
    ranks: Ranks, tmp_path: Path, saving: str | None, loading: str | None, name: str
) -> None:
    config = member(name, weight_decay=0.1)
    expected = _on(ranks, saving, _saved, config, tmp_path / "checkpoint")[0]
    for found in _on(ranks, loading, _loaded, config, tmp_path / "checkpoint"):
        assert sharded.close(found, expected)


def _owned(mesh: str) -> tuple[list[int], list[str], list[str]]:
    params, optimizer = _new(mesh, member("shampoo_adam"))
    _train(params, optimizer, range(1))
    entries = optimizer.state_dict()["state"]
    assert sorted(entries) == list(range(len(params)))
    state = {index: held for index, held in entries.items() if held}
    assert all(optimizer.state[params[index]] for index in state)
    assert all(optimizer.state[param] == {} for index, param in enumerate(params) if index not in state)
    portable = optimizer.distributed_state_dict()["state"]
    assert all(isinstance(x, Tensor) for entries in portable.values() for x in entries.values())
    return sorted(state), sorted(portable), sorted(str(key) for key in state)


def test_the_state_of_a_parameter_is_on_its_owner_alone(ranks: Ranks) -> None:
    results = ranks[4].run(_owned, "hybrid")
    owned = [index for indices, _, _ in results for index in indices]
    assert set(owned) == set(range(len(sharded.SHAPES)))
    # Those of one block have one owner.
    assert all(
        owned.count(index) == 1 for index, shape in enumerate(sharded.SHAPES) if max(shape) <= 8 and len(shape) > 1
    )
    assert all(portable == keys for _, portable, keys in results)


def _resumed_in_place(mesh: str) -> tuple[list[Tensor], list[Tensor]]:
    params, optimizer = _new(mesh, member("shampoo_adam"))
    _train(params, optimizer, BEFORE)
    saved, weights = optimizer.state_dict(), [sharded.whole(param) for param in params]
    expected = _train(params, optimizer, AFTER)
    again, other = _new(mesh, member("shampoo_adam"))
    with torch.no_grad():
        for param, x in zip(again, weights, strict=True):
            assert isinstance(param, DTensor)
            param.copy_(sharded.over_ranks(x, param.device_mesh))
    other.load_state_dict(saved)
    return expected, _train(again, other, AFTER)


def test_each_rank_resumes_from_its_own_state_dict(ranks: Ranks) -> None:
    for expected, found in ranks[3].run(_resumed_in_place, "three"):
        assert sharded.close(found, expected)


def _of_shards(saving: str | None, loading: str, path: Path) -> str:
    config = member("shampoo_adam")
    if saving is not None:
        params, optimizer = _new(saving, {**config, "distributed": "local"})
        _train(params, optimizer, BEFORE)
        dcp.save(_parts(params, optimizer), checkpoint_id=path)
        expected = _train(params, optimizer, AFTER)
    params, optimizer = _new(loading, {**config, "distributed": "local"})
    _train(params, optimizer, range(100, 102))
    state = _parts(params, optimizer)
    try:
        dcp.load(state, checkpoint_id=path)
    except (RuntimeError, dcp.api.CheckpointException) as error:
        return str(error)
    optimizer.load_distributed_state_dict(state["optimizer"])
    found = _train(params, optimizer, AFTER)
    return "equal" if all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)) else "different"


def test_the_state_of_shards_fits_as_many_ranks_and_no_others(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks[2].run(_of_shards, "two", "two", tmp_path / "checkpoint") == ["equal"] * 2
    for message in ranks[3].run(_of_shards, None, "three", tmp_path / "checkpoint"):
        assert "shard" in message
        assert "of 3" in message


def _of_another_mode(mesh: str) -> str:
    _, lossless = _new(mesh, member("shampoo_adam"))
    _, local = _new(mesh, {**member("shampoo_adam"), "distributed": "local"})
    with pytest.raises(ValueError, match="distributed == 'local'") as refusal:
        lossless.load_state_dict(local.state_dict())
    return str(refusal.value)


def test_the_state_of_another_mode_is_refused(ranks: Ranks) -> None:
    assert all("changed from False to True" in message for message in ranks[2].run(_of_another_mode, "two"))


def _by_name(mesh: str, path: Path) -> bool:
    """Through torch's functions for a model's state and its optimizer's, which name the state after parameters."""
    config = member("shampoo_adam")
    params, optimizer = _new(mesh, config)
    model = nn.ParameterList(params)
    _train(params, optimizer, BEFORE)
    dcp.save({"model": model.state_dict(), "optimizer": get_optimizer_state_dict(model, optimizer)}, checkpoint_id=path)
    expected = _train(params, optimizer, AFTER)
    again, other = _new(mesh, config)
    model = nn.ParameterList(again)
    state = {"model": model.state_dict(), "optimizer": get_optimizer_state_dict(model, other)}
    dcp.load(state, checkpoint_id=path)
    set_optimizer_state_dict(model, other, state["optimizer"])
    found = _train(again, other, AFTER)
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_it_goes_through_the_state_dict_functions_of_torch(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks[3].run(_by_name, "three", tmp_path / "checkpoint") == [True] * 3


@pytest.mark.filterwarnings("ignore:torch.distributed is:UserWarning")
def test_a_part_without_state_has_its_counts_alone(ranks: Ranks, tmp_path: Path) -> None:
    config = {"preconditioner": "none", "grafting": "sgd", "betas": (0.0, 0.9), "lr": 0.01}
    expected = ranks[2].run(_saved, "ddp two", config, tmp_path / "checkpoint")[0]
    assert sharded.close(_loaded(None, config, tmp_path / "checkpoint"), expected)
    for found in ranks[2].run(_loaded, "ddp two", config, tmp_path / "checkpoint"):
        assert sharded.close(found, expected)


def _saved_in_the_background(path: Path) -> list[Tensor]:
    params, optimizer = _new("ddp two", member("shampoo_adam", weight_decay=0.1))
    _train(params, optimizer, BEFORE)
    optimizer.param_groups[1]["lr"] = 0.002
    # Of its own: the collectives of gloo must come in one order, and these come whenever they do.
    group = dist.new_group(backend="gloo")
    under_way = dcp.async_save(_parts(params, optimizer), checkpoint_id=path, process_group=group)
    # What is saved is a copy: the state goes on.
    found = _train(params, optimizer, AFTER)
    assert isinstance(under_way, Future)
    under_way.result()
    return found


@pytest.mark.filterwarnings("ignore:torch.distributed is:UserWarning")
def test_a_checkpoint_may_be_written_while_training_goes_on(ranks: Ranks, tmp_path: Path) -> None:
    config = member("shampoo_adam", weight_decay=0.1)
    expected = ranks[2].run(_saved_in_the_background, tmp_path / "checkpoint")[0]
    assert sharded.close(_loaded(None, config, tmp_path / "checkpoint"), expected)
    for found in ranks[4].run(_loaded, "ddp four", config, tmp_path / "checkpoint"):
        assert sharded.close(found, expected)


def _held_of_other_ranks(mesh: str) -> str:
    _, optimizer = _new(mesh, member("shampoo_adam"))
    saved = optimizer.state_dict()
    for state in saved["state"].values():
        for name in [name for name in state if str(name).startswith("part ")]:
            state["part 6 of 7"] = state.pop(name)
    with pytest.raises(ValueError, match="checkpoint lacks part") as refusal:
        optimizer.load_state_dict(saved)
    return str(refusal.value)


def test_the_state_of_other_ranks_is_refused_with_what_fits_any(ranks: Ranks) -> None:
    for message in ranks[2].run(_held_of_other_ranks, "two"):
        assert (
            "it holds ['part 6 of 7']; that of distributed_state_dict(), saved on all ranks, is for any ranks"
            in message
        )


def _loaded_of_rank_0() -> str | None:
    params = [nn.Parameter(x) for x in sharded.initial_weights()]
    optimizer = Shampoo(params, **sharded.options("ddp two"))  # a block each, so that each has one owner
    saved = [optimizer.state_dict()]
    dist.broadcast_object_list(saved)  # as one that only rank 0 has saved
    try:
        optimizer.load_state_dict(saved[0])
    except ValueError as refusal:
        return str(refusal)
    return None


def test_a_checkpoint_of_rank_0_alone_is_refused_as_one_of_one_rank(ranks: Ranks) -> None:
    of_rank_0, *others = ranks[2].run(_loaded_of_rank_0)
    assert of_rank_0 is None
    for message in others:
        assert "it is the state_dict() of one rank, which holds what that rank owns, and others own this" in message
        assert "that of distributed_state_dict(), saved on all ranks, is for any ranks" in message


def _held_of_another_division(mesh: str) -> str:
    _, optimizer = _new(mesh, member("shampoo_adam"))
    saved = optimizer.state_dict()
    for state in saved["state"].values():
        for name in [name for name in state if str(name).startswith("part ")]:
            state[name]["blocks.0"] = state[name]["blocks.0"] + 1
    with pytest.raises(ValueError, match="is of other blocks") as refusal:
        optimizer.load_state_dict(saved)
    return str(refusal.value)


def test_the_state_of_other_blocks_is_refused(ranks: Ranks) -> None:
    assert all("blocks.0 is tensor" in message for message in ranks[2].run(_held_of_another_division, "ddp two"))
