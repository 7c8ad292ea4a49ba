"""Ranks that stay warm for the whole session, and a workload that is evaluated quickly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.support.trainers.ranks import WarmRanks
from trainers.workloads.language import stdlib_gpt


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def _few_validation_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """An eighth of the sequences that `stdlib-gpt` evaluates, for tests that are not about their number.

    Evaluations would take more than half of their time.
    """
    few = {size: replace(shape, num_validation_sequences=32) for size, shape in stdlib_gpt.SHAPES.items()}
    monkeypatch.setattr(stdlib_gpt, "SHAPES", few)


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmRanks]:
    yield from _warm_ranks(2, tmp_path_factory.mktemp("two_ranks") / "meeting_point")


@pytest.fixture(scope="session")
def three_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmRanks]:
    yield from _warm_ranks(3, tmp_path_factory.mktemp("three_ranks") / "meeting_point")


def _warm_ranks(world_size: int, meeting_point: Path) -> Iterator[WarmRanks]:
    ranks = WarmRanks(world_size, meeting_point)
    yield ranks
    # An abort while the group is destroyed shows in the exit code and nowhere else.
    assert ranks.stop() == [0] * world_size
