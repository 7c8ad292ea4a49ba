"""Room for groups of two ranks, on a cluster of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from service.scheduler.cluster import ray_cluster, worker_template
from service.scheduler.cluster.group_size import GroupSize
from service.scheduler.cluster.run_environment import DIRECTORY_VARIABLE
from service.scheduler.cluster.worker_start import SOCKET_VARIABLE
from service.scheduler.launcher import Launcher
from service.scheduler.run_process import held_pipe, make_directory
from tests.service.scheduler.ranks import idle_run
from tests.support.service.service_process import PLUGIN

TWO = GroupSize(world_size=2, cpus_per_rank=1.0, gpus_per_rank=0)


@pytest.fixture(scope="package")
def bundles() -> Iterator[PlacementGroup]:
    """Room for two ranks on a cluster of its own, which are forked as those of a worker's run: with Ray imported."""
    directory = make_directory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(PLUGIN))
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_prestart_worker_first_driver", "0")
        patch.setenv(DIRECTORY_VARIABLE, str(directory))
        with Launcher({}) as launcher, held_pipe() as stdin:
            run = launcher.launch(idle_run.__name__, [], environment=os.environ, stdin=stdin, output=2)
            assert run is not None
            patch.setenv(SOCKET_VARIABLE, str(directory / worker_template.SOCKET_NAME))
            ray_cluster.connect(None, directory=directory)
            group = placement_group([TWO.rank_bundle] * 2)
            yield group
            remove_placement_group(group)
            ray.shutdown()
