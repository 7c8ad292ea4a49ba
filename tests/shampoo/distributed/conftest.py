"""Ranks that stay warm for the tests of this package: each of its many meshes leaves threads of gloo behind in them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.support.trainers.ranks import WarmRanks


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="package")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, WarmRanks]]:
    """Groups of two, three and four ranks, by their number."""
    groups: dict[int, WarmRanks] = {}

    class Started(dict[int, WarmRanks]):
        def __missing__(self, num_ranks: int) -> WarmRanks:
            meeting_point = tmp_path_factory.mktemp(f"{num_ranks}_ranks") / "meeting_point"
            self[num_ranks] = groups[num_ranks] = WarmRanks(num_ranks, meeting_point)
            return self[num_ranks]

    yield Started()
    for num_ranks, group in groups.items():
        # An abort while the group is destroyed shows in the exit code and nowhere else.
        assert group.stop() == [0] * num_ranks
