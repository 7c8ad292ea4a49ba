"""A rank that is killed or hangs: the others notice, end as `lost`, and the trial goes on when it is started again."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from tests.support.trainers.trials import determined, small_trial
from tests.support.waiting import PATIENCE_SECONDS
from trainers.ranks.context import DEFAULT_TIMEOUT_SECONDS
from trainers.ranks.lost_ranks import is_of_a_lost_rank
from trainers.run import DONE, LOST

pytestmark = pytest.mark.processes

TIMEOUT_SECONDS = 20.0
"""Time that a rank waits for the other: in a collective, and to join it at the start on a busy machine."""


def start_rank(rank: int, config: Path, directory: Path, port: int) -> subprocess.Popen[str]:
    """One of two ranks, as torchrun would start it, but with nobody who ends it when the other one dies."""
    environment = {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "trainers.run", str(config), "--checkpoint-directory", str(directory)]
    command += ["--timeout", str(TIMEOUT_SECONDS)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def start_both(config: Path, directory: Path) -> list[subprocess.Popen[str]]:
    port = unused_port()
    return [start_rank(rank, config, directory, port) for rank in range(2)]


def unused_port() -> int:
    """A port that nobody is given by chance until rank 0 listens on it: those lie above 32768."""
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def config_file(directory: Path, **options: Any) -> Path:
    options = {"end_file": str(directory / "end"), "checkpoints": str(directory / "checkpoints"), **options}
    config = small_trial(
        workload="tests.support.trainers.mortal_digits:MortalDigits",
        workload_options=options,
        num_steps=60,
        batch_size=32,
    )
    path = directory / "config.json"
    path.write_text(json.dumps(config.to_json()))
    return path


def metrics_by_step(lines: list[str]) -> dict[int, dict[str, float]]:
    parsed = [json.loads(line) for line in lines if line.startswith("{")]
    return {line["step"]: determined(line["metrics"]) for line in parsed}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "signal_name"),
    [("step", "SIGKILL"), ("collective", "SIGKILL"), ("checkpoint", "SIGKILL"), ("step", "SIGSTOP")],
)
def test_the_other_rank_ends_as_lost_and_the_trial_goes_on_from_its_checkpoint(
    moment: str, signal_name: str, tmp_path: Path
) -> None:
    # Starting two ranks is most of the time that this takes.
    config = config_file(tmp_path, moment=moment, signal_name=signal_name)
    directory = tmp_path / "checkpoints"
    ranks = start_both(config, directory)
    try:
        assert ranks[0].stdout is not None
        heard = [ranks[0].stdout.readline() for _ in range(2)]
        (tmp_path / "end").touch()
        noticed_from = time.monotonic()
        rest, errors = ranks[0].communicate(timeout=PATIENCE_SECONDS)
        assert time.monotonic() - noticed_from < DEFAULT_TIMEOUT_SECONDS  # as it was told, it waits less long
        assert ranks[0].returncode == LOST, errors
        assert "rank 0 lost another rank: " in errors
        assert "terminate called" not in errors
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert ranks[1].returncode == -signal.SIGKILL
    (tmp_path / "end").unlink()
    before = metrics_by_step([*heard, *rest.splitlines()])
    assert 60 not in before
    if moment == "step":  # nothing was under way to the disk
        return

    again = start_both(config, directory)
    try:
        output, errors = again[0].communicate(timeout=PATIENCE_SECONDS)
        again[1].communicate(timeout=PATIENCE_SECONDS)
    finally:
        for rank in again:
            rank.kill()
    assert [rank.returncode for rank in again] == [DONE, DONE], errors
    after = metrics_by_step(output.splitlines())
    assert max(after) == 60
    assert min(after) >= max(before) - 10  # the newest checkpoint may have been on its way to the disk
    for step in before.keys() & after.keys():
        assert after[step] == before[step]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("[/pytorch/third_party/gloo/.../pair.cc:538] Connection closed by peer [127.0.0.1]:4711"), True),
        (RuntimeError("Timed out waiting 8000ms for recv operation to complete"), True),
        (dist.DistNetworkError("the store is gone"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("Connection closed by peer"), False),
    ],
)
def test_only_failed_collectives_are_taken_for_a_lost_rank(error: Exception, expected: bool) -> None:
    assert is_of_a_lost_rank(error) == expected


def test_a_lost_rank_is_recognised_behind_other_errors() -> None:
    error = ValueError("no checkpoint")
    error.__cause__ = RuntimeError("Connection reset by peer")
    assert is_of_a_lost_rank(error)
