"""Estimates for many ranks from shapes alone, against real ranks; and the benchmark that makes them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from torch import Tensor, nn

from shampoo import Shampoo
from shampoo.distributed import placement
from shampoo.distributed.sharding_plan import ShardingPlan
from shampoo.distributed.topology import RankArray
from shampoo.hyperparameters import DEFAULTS, Hyperparameters
from tests.benchmarks.many_ranks import distributed_step
from tests.benchmarks.many_ranks.ranks_simulation import Group, fully_sharded, replicated, simulate
from tests.benchmarks.many_ranks.sharded_steps import moved_bytes
from tests.benchmarks.steps.model_shapes import SPLIT_MODELS
from tests.support.shampoo import sharded
from tests.support.trainers.ranks import WarmRanks

Ranks = dict[int, WarmRanks]

# The last shapes are stepped plainly, the very last, if they are sharded, as rows alone.
NUM_MATRICES, NUM_OWNED = 5, 8
CONFIGS: dict[str, dict[str, Any]] = {
    "shampoo": {"preconditioner": "shampoo", "max_preconditioner_dim": 8},
    "soap_int4": {"preconditioner": "soap", "max_preconditioner_dim": 16, "state_dtype": "int4"},
    "spectral": {"preconditioner": "spectral"},
}


def _groups(name: str) -> list[Group]:
    shapes = list(sharded.SHAPES)
    return [
        Group(shapes[:NUM_MATRICES], CONFIGS[name]),
        Group(shapes[NUM_MATRICES:NUM_OWNED], {"preconditioner": "none"}),
        Group([*shapes[NUM_OWNED:], (50, 3)], {"preconditioner": "none", "distributed": "local"}),
    ]


def _array(mesh: str) -> RankArray:
    if mesh in sharded.REPLICAS:
        return replicated(sharded.REPLICAS[mesh])
    *replicas, num_shards = sharded.MESHES[mesh]
    return fully_sharded(num_shards, *replicas)


def _on_ranks(mesh: str, groups: Sequence[Group], round_bytes: int) -> tuple[int, int, int, int]:
    """Bytes of state, those of a step beside it, and what the step sends and receives, on this rank."""
    mesh_here = None if mesh in sharded.REPLICAS else sharded.device_mesh(mesh)

    def placed(tensor: Tensor) -> Tensor:
        return tensor if mesh_here is None else sharded.over_ranks(tensor, mesh_here)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "ROUND_BYTES", round_bytes)
        made: list[dict[str, Any]] = []
        for group in groups:
            weights = [placed(tensor) for tensor in sharded.initial_weights(group.shapes)]
            made.append({"params": [nn.Parameter(tensor) for tensor in weights], **group.config})
        plan = ShardingPlan().propose(
            [(g["params"], Hyperparameters(**{**DEFAULTS, **c.config})) for g, c in zip(made, groups, strict=True)]
        )
        optimizer = Shampoo(made)
    for index, param in enumerate(param for group in made for param in group["params"]):
        param.grad = placed(sharded.gradient(index, 0, tuple(param.shape)))
    with moved_bytes() as moved:
        optimizer.step()
    return sharded.state_bytes(optimizer), plan.working_bytes(), moved["sent"], moved["received"]


def _are_as_simulated(
    ranks: Ranks, mesh: str, groups: Sequence[Group], monkeypatch: pytest.MonkeyPatch, round_bytes: int
) -> None:
    monkeypatch.setattr(placement, "ROUND_BYTES", round_bytes)
    simulated = simulate(groups, _array(mesh), device="cpu")
    moved = simulated.moved
    found = ranks[sharded.num_ranks(mesh)].run(_on_ranks, mesh, groups, round_bytes)
    expected = zip(simulated.state_bytes, moved.working_bytes, moved.sent_bytes, moved.received_bytes, strict=True)
    assert found == list(expected)


@pytest.mark.parametrize("name", sorted(CONFIGS))
@pytest.mark.parametrize("mesh", sorted(sharded.MESHES))
def test_a_simulation_is_what_sharded_ranks_hold_and_send_to_the_byte(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch, mesh: str, name: str
) -> None:
    _are_as_simulated(ranks, mesh, _groups(name), monkeypatch, placement.ROUND_BYTES)


@pytest.mark.parametrize("communication_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", sorted(CONFIGS))
@pytest.mark.parametrize("mesh", sorted(sharded.REPLICAS))
def test_a_simulation_is_what_ranks_with_plain_parameters_hold_and_send_to_the_byte(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch, mesh: str, name: str, communication_dtype: str
) -> None:
    sharing = {"distributed": "lossless", "num_ranks_per_group": sharded.REPLICAS[mesh]}
    groups = [
        Group(group.shapes, {**group.config, **sharing, "communication_dtype": communication_dtype})
        for group in _groups(name)
    ]
    _are_as_simulated(ranks, mesh, groups, monkeypatch, placement.ROUND_BYTES)


@pytest.mark.parametrize("mesh", ["ddp two", "ddp three"])
def test_a_simulation_knows_what_it_takes_to_average_gradients(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch, mesh: str
) -> None:
    sharing = {"distributed": "lossless", "reduce_gradients": True}
    groups = [Group(group.shapes, {**group.config, **sharing}) for group in _groups("shampoo")]
    _are_as_simulated(ranks, mesh, groups, monkeypatch, 600)


@pytest.mark.parametrize("mesh", ["three", "hybrid", "ddp four"])
def test_a_simulation_knows_rounds_and_what_each_group_sends(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch, mesh: str
) -> None:
    sharing = {"distributed": "lossless"}
    if mesh in sharded.REPLICAS:
        sharing["num_ranks_per_group"] = sharded.REPLICAS[mesh]  # type: ignore[assignment]  # one of several types
    groups = [
        Group(group.shapes, {**group.config, **sharing, "communication_dtype": communication_dtype})
        for group, communication_dtype in zip(_groups("shampoo"), ("bfloat16", "float32", "float16"), strict=True)
    ]
    _are_as_simulated(ranks, mesh, groups, monkeypatch, 600)


def _num_collectives_on_equal_meshes() -> int:
    meshes = [sharded.new_device_mesh("hybrid") for _ in range(2)]
    params = [
        nn.Parameter(sharded.over_ranks(tensor, meshes[index % 2]))
        for index, tensor in enumerate(sharded.initial_weights())
    ]
    optimizer = Shampoo(params)
    for index, param in enumerate(params):
        param.grad = sharded.over_ranks(sharded.gradient(index, 0, tuple(param.shape)), meshes[index % 2])
    with moved_bytes() as moved:
        optimizer.step()
    return moved["collectives"]


def test_parameters_on_equal_meshes_share_their_collectives(ranks: Ranks) -> None:
    # An exchange in, one out, and the gather over replicas.
    assert ranks[4].run(_num_collectives_on_equal_meshes) == [3] * 4


def _plainly(mesh: str | None, config: dict[str, Any]) -> list[Tensor]:
    return sharded.train(mesh, {"preconditioner": "none", "weight_decay": 0.1, **config}, 6)


@pytest.mark.parametrize("mesh", ["two", "hybrid"])
def test_what_has_no_preconditioner_steps_alike_where_it_lies(ranks: Ranks, mesh: str) -> None:
    # What the package's page advises for tables. Elements at the end of a vector register may round otherwise.
    expected = _plainly(None, {})
    for found in ranks[sharded.num_ranks(mesh)].run(_plainly, mesh, {"distributed": "local"}):
        assert sharded.difference(found, expected) < 1e-6


@pytest.mark.parametrize(
    ("model", "num_elements"),
    [
        ("resnet50", 25_557_032),
        ("gpt2", 124_439_808),
        ("llama_1b", 1_235_814_400),
        ("llama_7b", 6_738_415_616),
        ("llama_70b", 68_976_648_192),
        ("dense_1t", 1_008_038_758_400),
        ("mixture_1t", 1_026_408_209_408),
        ("stacked_mixture_1t", 1_026_408_209_408),
        ("recommender", 4_323_978_753),
    ],
)
def test_models_have_their_published_sizes(model: str, num_elements: int) -> None:
    assert SPLIT_MODELS[model]().num_elements == num_elements


@pytest.mark.processes
def test_the_benchmark_measures_simulates_and_tells_what_is_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--quick", "--preconditioners", "shampoo", "--models", "llama_1b"]
    monkeypatch.setattr(sys, "argv", ["distributed_step", *arguments])
    distributed_step.main()
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["benchmark"] == "distributed_step"
    assert set(result["figures"]) == {"measured", "simulated", "needed"}
    ratios = result["ratios"]
    for mode in ("lossless", "shared"):
        assert ratios[f"state_over_share.{mode}.shampoo.ranks_2"] <= 1.1
        assert ratios[f"bytes_over_simulated.{mode}.shampoo.ranks_2"] == 1
        # Alignment and headers come on top of the documented formula.
        assert 1 <= ratios[f"bytes_over_formula.{mode}.shampoo.ranks_2"] < 1.1
    assert result["figures"]["measured"]["shampoo.ranks_2"]["sent_bytes"]["local"] == [0, 0]
    for mode in distributed_step.PLACEMENTS:
        assert ratios[f"ranks_within_tenth.llama_1b.shampoo.{mode}"] == 64
