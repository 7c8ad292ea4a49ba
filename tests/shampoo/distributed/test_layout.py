"""DTensor layouts that are refused, and how the rows of the others are counted; a mesh of one rank is enough."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from shampoo import Shampoo
from shampoo.distributed.layout import ShardLayout, is_dtensor, layout_of
from shampoo.distributed.topology import RankArray, Topology


@pytest.fixture(scope="module")
def _process_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    meeting_point = tmp_path_factory.mktemp("layout") / "meeting_point"
    dist.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{meeting_point}")
    yield
    dist.destroy_process_group()


@pytest.fixture
def mesh(_process_group: None) -> DeviceMesh:
    return init_device_mesh("cpu", (1, 1), mesh_dim_names=("data", "tensor"))


def _dtensor(mesh: DeviceMesh, *placements: Placement) -> torch.nn.Parameter:
    return nn.Parameter(DTensor.from_local(torch.ones(4, 3), mesh, placements))


@pytest.mark.parametrize(
    "placements",
    [(Replicate(), Shard(1)), (Shard(1), Shard(0)), (Replicate(), Partial()), (Partial(), Shard(0))],
    ids=str,
)
def test_tensor_parallel_and_partial_parameters_are_refused(
    mesh: DeviceMesh, placements: tuple[Placement, ...]
) -> None:
    with pytest.raises(ValueError, match=r"parameter 1 of shape \(4, 3\) has placements .* is not supported"):
        Shampoo([torch.ones(2, 2, requires_grad=True), _dtensor(mesh, *placements)])


def test_rows_cut_over_two_dimensions_of_the_mesh_are_refused(mesh: DeviceMesh) -> None:
    with pytest.raises(ValueError, match=r"only one dimension of the mesh may cut it, not 2; flatten the mesh"):
        Shampoo([_dtensor(mesh, Shard(0), Shard(0))])


def test_a_refused_group_leaves_nothing_behind(mesh: DeviceMesh) -> None:
    optimizer = Shampoo([torch.ones(2, 2, requires_grad=True)])
    with pytest.raises(ValueError, match="is not supported"):
        optimizer.add_param_group({"params": [_dtensor(mesh, Replicate(), Shard(1))]})
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("placements", [(Replicate(), Shard(0)), (Shard(0), Replicate()), (Replicate(), Replicate())])
def test_fully_sharded_hybrid_and_replicated_parameters_are_known(
    mesh: DeviceMesh, placements: tuple[Placement, ...]
) -> None:
    param = _dtensor(mesh, *placements)
    assert is_dtensor(param)
    layout = layout_of(param, index=0)
    assert layout.topology.array.shard_dim == next((dim for dim, p in enumerate(placements) if p == Shard(0)), None)
    assert layout.rows(0) == (0, 4)
    assert layout.shard_shape(0) == (4, 3)


def test_shards_that_share_memory_are_refused_and_parts_of_one_tensor_are_not(mesh: DeviceMesh) -> None:
    whole = torch.ones(8, 3)
    first, second, across = (
        nn.Parameter(DTensor.from_local(rows, mesh, (Replicate(), Shard(0)))) for rows in (whole[:4], whole[4:], whole)
    )
    with pytest.raises(ValueError, match=r"parameter 1 of group 0 of .* and parameter 0 of group 0 .* share memory"):
        Shampoo([second, across])
    assert len(Shampoo([first, second]).state) == 2


def test_a_plain_tensor_is_no_dtensor() -> None:
    assert not is_dtensor(torch.ones(2))


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 7, 8])
def test_rows_are_cut_as_torch_chunk_cuts_them(length: int) -> None:
    # Of a mesh of four ranks, which would need four processes.
    topology = Topology(ranks="four", array=RankArray((4,), 0), number=1, groups=(), name="four")
    layout = ShardLayout(topology, (length, 2))
    chunks = torch.arange(length).chunk(4)
    expected = [chunk.tolist() for chunk in chunks] + [[]] * (4 - len(chunks))
    expected = [[] if chunk == [] else chunk for chunk in expected]
    assert [list(range(*layout.rows(shard))) for shard in range(4)] == expected
    assert [layout.span(shard) for shard in range(4)] == [
        (2 * start, 2 * stop) for start, stop in map(layout.rows, range(4))
    ]


def test_ranks_are_numbered_as_a_mesh_numbers_them() -> None:
    array = RankArray((2, 3, 2), 1)
    assert (array.num_ranks, array.num_shards, array.num_replicas, array.replica_dims) == (12, 3, 4, (0, 2))
    assert [array.replica_and_shard(number) for number in (0, 1, 2, 6, 11)] == [
        ((0, 0), 0),
        ((0, 1), 0),
        ((0, 0), 1),
        ((1, 0), 0),
        ((1, 1), 2),
    ]
    numbers = [array.number_of(replica, shard) for replica in range(4) for shard in range(3)]
    assert sorted(numbers) == list(range(12))
    assert numbers[:3] == [0, 2, 4]
