"""A cluster's resources, its shortages, and the reason why a trial in it waits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.tune import Callback
from ray.tune import tune as tune_run
from ray.util.placement_group import placement_group, remove_placement_group

from service.scheduler.cluster import ray_cluster
from service.scheduler.cluster.group_size import GroupSize
from service.scheduler.cluster.ray_cluster import Node
from service.scheduler.cluster.ray_internals import counting_no_callbacks
from service.scheduler.cluster.run_environment import run_environment
from service.scheduler.run_process import make_directory
from service.settings import Settings
from tests.support.waiting import PATIENCE_SECONDS, wait_until

GIB = 2**30


@pytest.mark.parametrize(
    ("nodes", "size", "expected"),
    [
        ([Node({"CPU": 2})], GroupSize(2, 1.0, 0), 1),
        ([Node({"CPU": 2})], GroupSize(2, 2.0, 0), 0),
        ([Node({"CPU": 4}), Node({"CPU": 4})], GroupSize(2, 3.0, 0), 1),
        ([Node({"CPU": 64, "GPU": 8})], GroupSize(2, 4.0, 1), 4),
        ([Node({"CPU": 64})], GroupSize(1, 1.0, 1), 0),
        ([], GroupSize(1, 1.0, 0), 0),
        ([Node({"CPU": 0.3})], GroupSize(1, 0.1, 0), 3),
        ([Node({"CPU": 8, "GPU": 2})], GroupSize(1, 1.0, 0.5), 4),
        # A part is a part of one GPU: the two rests of 0.4 are no use.
        ([Node({"CPU": 8, "GPU": 2})], GroupSize(1, 1.0, 0.6), 2),
        ([Node({"CPU": 8, "memory": 10 * GIB})], GroupSize(1, 1.0, 0, 4 * GIB), 2),
        ([Node({"CPU": 8, "tpu": 4}), Node({"CPU": 8})], GroupSize(2, 1.0, 0, 0, {"tpu": 1.0}), 2),
    ],
)
def test_parallel_trials_are_those_whose_ranks_fit_on_the_machines(
    nodes: list[Node], size: GroupSize, expected: int
) -> None:
    assert ray_cluster.max_parallel_trials(nodes, size) == expected


@pytest.mark.parametrize(
    ("address", "why"), [("127.0.0.1:1", "Connection refused"), ("nonsense", "Invalid address format: nonsense")]
)
def test_a_cluster_that_does_not_answer_is_named_with_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, why: str
) -> None:
    monkeypatch.setattr(ray_cluster, "ANSWER_SECONDS", 1.0)
    named = (
        f"^the Ray cluster at {address}, which SHAMPOO_TUNER_RAY_ADDRESS or RAY_ADDRESS names, cannot be used: .*{why}"
    )
    with pytest.raises(ray_cluster.ClusterOutOfReach, match=named):
        ray_cluster.connect(address, directory=tmp_path)


ADDRESS_OF_ITS_OWN = """
import sys
from pathlib import Path
from service.scheduler.cluster import ray_cluster
ray_cluster.connect(None, directory=Path(sys.argv[1]))
print(ray_cluster.identity())
ray_cluster.leave(None)
"""


@pytest.mark.services
def test_a_runs_own_cluster_is_at_the_loopback_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a network would go with it, as a laptop's does."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    directory = make_directory()
    environment = {**os.environ, **run_environment(Settings(), directory)}
    command = [sys.executable, "-c", ADDRESS_OF_ITS_OWN, str(directory)]
    printed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    shutil.rmtree(directory)
    assert printed.splitlines()[-1].startswith("127.0.0.1:")


def test_tune_imports_no_tracker_to_count_callbacks() -> None:
    asked: Any = vars(tune_run)["air_usage"]  # the module, as Tune's run has it
    ordinary = asked.tag_callbacks
    with counting_no_callbacks():
        assert asked.tag_callbacks([Callback()]) is False
    assert asked.tag_callbacks is ordinary


@pytest.mark.parametrize(
    ("nodes", "size", "expected"),
    [
        ([Node({"CPU": 4}), Node({"CPU": 4})], GroupSize(2, 1.0, 0), 0.25),
        ([Node({"CPU": 64, "GPU": 4})], GroupSize(2, 4.0, 1), 0.5),  # of the GPUs; 1/8 of the CPUs
        ([Node({"CPU": 64, "GPU": 4})], GroupSize(1, 32.0, 0.5), 0.5),
        ([Node({"CPU": 8, "memory": 8 * GIB}), Node({"CPU": 8})], GroupSize(1, 1.0, 0, 2 * GIB), 0.25),
        ([Node({"CPU": 1})], GroupSize(2, 1.0, 0), 1.0),  # machines were lost
        ([], GroupSize(1, 1.0, 0), 1.0),
    ],
)
def test_the_share_of_a_trial_is_that_of_the_resource_it_takes_most_of(
    nodes: list[Node], size: GroupSize, expected: float
) -> None:
    assert ray_cluster.dominant_share(nodes, size) == pytest.approx(expected)


def test_a_shortage_names_everything_that_a_rank_wants() -> None:
    size = GroupSize(2, 1.0, 0.0, 8 * GIB, {"tpu": 2.0})
    nodes = [Node({"CPU": 4.0, "GPU": 1.0, "memory": 6 * GIB, "other": 3.0})] * 3 + [Node({"CPU": 0.5})]
    assert ray_cluster.describe_shortage(nodes, size) == (
        "the cluster cannot hold a trial of 2 ranks with 1 CPU, 0 GPUs, 8.00 GiB of memory and 2 tpu each; its "
        "machines: 3 times 4 CPUs, 1 GPU, 6.00 GiB of memory and 0 tpu, 0.5 CPUs, 0 GPUs, 0.00 GiB of memory and 0 tpu"
    )


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One machine with 3 CPUs, a GPU that is only said to be there, and 2 widgets."""
    directory = make_directory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(
            address="local",
            num_cpus=3,
            num_gpus=1,
            resources={"widget": 2},
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=ray_cluster.OBJECT_STORE_BYTES,
            _temp_dir=str(directory),
        )
        yield
        ray.shutdown()


@pytest.mark.patient
@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_trial_says_what_it_waits_for() -> None:
    size = GroupSize(2, 1.0, 0.0, 0, {"widget": 1.0})
    assert ray_cluster.describe_wait(size) is None
    other = placement_group([size.rank_bundle] * 2)
    ray.get(other.ready(), timeout=PATIENCE_SECONDS)
    wait_until(lambda: ray_cluster.describe_wait(size) is not None, "Ray to count what it has given")
    assert ray_cluster.describe_wait(size) == "needs 2 CPUs, 1 free and 2 widget, 0 free"
    assert ray_cluster.describe_wait(GroupSize(1, 2.0, 0.5)) == "needs 2 CPUs, 1 free"
    assert ray_cluster.short_of(size) == {"CPU", "widget"}
    assert ray_cluster.describe_wait(GroupSize(4, 0.25, 0.0)) is None
    assert ray_cluster.short_of(GroupSize(4, 0.25, 0.0)) == frozenset()
    remove_placement_group(other)
