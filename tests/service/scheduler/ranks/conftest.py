"""Room for groups of two ranks, on a cluster of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from service.scheduler.cluster import ray_cluster
from service.scheduler.cluster.group_size import GroupSize
from service.scheduler.cluster.worker_template import WorkerTemplate
from service.scheduler.run_process import make_directory
from tests.support.service.service_process import PLUGIN

TWO = GroupSize(world_size=2, cpus_per_rank=1.0, gpus_per_rank=0)


@pytest.fixture(scope="module")
def bundles() -> Iterator[PlacementGroup]:
    """Room for two ranks on a cluster of its own."""
    directory = make_directory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(PLUGIN))
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        with WorkerTemplate(directory):
            ray_cluster.connect(None, directory=directory)
            group = placement_group([TWO.rank_bundle] * 2)
            yield group
            remove_placement_group(group)
            ray.shutdown()
