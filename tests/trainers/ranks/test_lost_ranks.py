"""A rank that is killed or hangs: the others notice, end as `lost`, and the trial goes on when it is started again."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from tests.support.trainers.ranks import rank_context
from tests.support.trainers.trials import determined, small_trial
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from trainers import run
from trainers.ranks.context import DEFAULT_TIMEOUT_SECONDS
from trainers.ranks.lost_ranks import is_of_a_lost_rank
from trainers.run import DONE, LOST

pytestmark = pytest.mark.processes

TIMEOUT_SECONDS = 20.0
"""Time that a rank waits for the other: in a collective, and to join it at the start on a busy machine."""


class Rank:
    """One of two ranks, as torchrun would start it, but with nobody who ends it when the other one dies."""

    def __init__(self, rank: int, config: Path, directory: Path, port: int) -> None:
        self._output, self._errors = (directory.with_name(f"{kind}-{rank}-{port}") for kind in ("output", "errors"))
        arguments = [str(config), "--checkpoint-directory", str(directory), "--timeout", str(TIMEOUT_SECONDS)]
        environment = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
        }
        self.process = rank_context().Process(
            target=run_command, args=(arguments, environment, self._output, self._errors)
        )
        self.process.start()

    def lines(self) -> list[str]:
        """Of its output, those that are whole."""
        text = self._output.read_text() if self._output.exists() else ""
        return text.splitlines()[: text.count("\n")]

    def errors(self) -> str:
        return self._errors.read_text()

    def wait(self) -> int | None:
        """Its exit status; negative: the signal that ended it."""
        self.process.join(PATIENCE_SECONDS)
        return self.process.exitcode


def run_command(arguments: list[str], environment: dict[str, str], output: Path, errors: Path) -> None:
    """Does as `python -m trainers.run` does, in a process that has its imports already."""
    for path, number in ((output, 1), (errors, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.environ.update(environment)
    sys.exit(run.main(arguments))


def start_both(config: Path, directory: Path) -> list[Rank]:
    port = unused_port()
    return [Rank(rank, config, directory, port) for rank in range(2)]


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


@pytest.mark.parametrize(
    ("moment", "signal_name"),
    [("step", "SIGKILL"), ("collective", "SIGKILL"), ("checkpoint", "SIGKILL"), ("step", "SIGSTOP")],
)
def test_the_other_rank_ends_as_lost_and_the_trial_goes_on_from_its_checkpoint(
    moment: str, signal_name: str, tmp_path: Path
) -> None:
    config = config_file(tmp_path, moment=moment, signal_name=signal_name)
    directory = tmp_path / "checkpoints"
    ranks = start_both(config, directory)
    try:
        wait_until(lambda: len(ranks[0].lines()) >= 2, "two measurements", more=ranks[0].errors)
        (tmp_path / "end").touch()
        noticed_from = time.monotonic()
        status = ranks[0].wait()
        assert time.monotonic() - noticed_from < DEFAULT_TIMEOUT_SECONDS  # as it was told, it waits less long
        assert status == LOST, ranks[0].errors()
        assert "rank 0 lost another rank: " in ranks[0].errors()
        assert "terminate called" not in ranks[0].errors()
    finally:
        for rank in ranks:
            rank.process.kill()
    assert ranks[1].wait() == -signal.SIGKILL
    (tmp_path / "end").unlink()
    before = metrics_by_step(ranks[0].lines())
    assert 60 not in before
    if moment == "step":  # nothing was under way to the disk
        return

    again = start_both(config, directory)
    try:
        assert [rank.wait() for rank in again] == [DONE, DONE], again[0].errors()
    finally:
        for rank in again:
            rank.process.kill()
    after = metrics_by_step(again[0].lines())
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


def test_a_rank_that_never_comes_to_the_group_is_lost() -> None:
    store = dist.TCPStore(  # type: ignore[attr-defined]  # public, but left out of the stubs
        "127.0.0.1", 0, world_size=2, is_master=True, wait_for_workers=False
    )
    with pytest.raises(dist.DistStoreError) as raised:
        store.wait(["of the other rank"], timedelta(milliseconds=50))
    assert is_of_a_lost_rank(raised.value)


def test_a_lost_rank_is_recognised_behind_other_errors() -> None:
    error = ValueError("no checkpoint")
    error.__cause__ = RuntimeError("Connection reset by peer")
    assert is_of_a_lost_rank(error)


def test_causes_in_a_circle_come_to_an_end() -> None:
    error = ValueError("as `raise error from error` has it")
    error.__cause__ = error
    assert not is_of_a_lost_rank(error)
