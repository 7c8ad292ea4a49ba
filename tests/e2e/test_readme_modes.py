"""The commands of trainers/README.md that share a config among four ranks in every way, with one process's losses.

That of one process is run as it stands. The others' arguments, as the shell gives them to `torchrun`, go to the same
command line on four ranks that are started once: the imports of a rank take longer than its training here. What
torchrun itself does, `test_workloads` sees.
"""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.support.readmes import ROOT, blocks
from tests.support.trainers.ranks import WarmRanks
from tests.support.waiting import run_in_a_session
from trainers import run
from trainers.loop import train
from trainers.ranks.context import process_group_context

pytestmark = pytest.mark.processes

BLOCK = next(block for block in blocks("trainers/README.md", "sh") if "gpt.json" in block)
TOLERANCE = 3e-5
"""Of a loss: sums over ranks run in another order, in float32, and training enlarges that a little: to 1e-5 on some
processors. A gradient that lacks a rank's share is off by 1e-2."""
TOLERANCE_OF_BFLOAT16 = 1e-3


def _printed(commands: str, directory: Path) -> list[str]:
    """The lines that the shell's commands print."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    environment["PYTHONPATH"] = f"{ROOT}:{environment.get('PYTHONPATH', '')}"
    ran = run_in_a_session(["bash", "-ec", commands], cwd=directory, env=environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def _train_as_told(arguments: list[str]) -> list[dict[str, Any]]:
    """The measurements of a rank's command line with these arguments, in the process group that the rank is in."""
    options = run.parse(arguments)
    config = run.read_config(options.config, options.set)
    return [asdict(measurement) for measurement in train(config, process_group_context())]


def _largest_difference(found: list[dict[str, float]], expected: list[dict[str, float]]) -> float:
    return max(
        abs(ours[name] / theirs[name] - 1)
        for ours, theirs in zip(found, expected, strict=True)
        for name in ("train_loss", "validation_loss")
    )


def test_four_ranks_train_in_every_mode_with_the_losses_of_one_process(tmp_path: Path) -> None:
    before, command, rest = BLOCK.partition("python -m trainers.run gpt.json\n")
    alone = [json.loads(line)["metrics"] for line in _printed(before + command, tmp_path)]
    assert [math.isfinite(metrics["train_loss"]) for metrics in alone] == [True] * 5
    definition, *modes = rest.splitlines()
    assert len(modes) == 7
    told = _printed("\n".join(['torchrun() { echo "$*"; }', definition, *modes]), tmp_path)
    ranks = WarmRanks(4, tmp_path / "meeting_point")
    try:
        for mode, line in zip(modes, told, strict=True):
            launch, _, arguments = line.partition(" -m trainers.run ")
            assert launch == "--standalone --nproc-per-node 4"
            config, *others = arguments.split()
            measured, *_ = ranks.run(_train_as_told, [str(tmp_path / config), *others])
            _compare(mode, [measurement["metrics"] for measurement in measured], alone)
    finally:
        assert ranks.stop() == [0] * 4


def _compare(mode: str, found: list[dict[str, float]], alone: list[dict[str, float]]) -> None:
    """Holds what four ranks measured in a mode to the measurements of one process."""
    share = found[-1]["optimizer_state_bytes"] / alone[-1]["optimizer_state_bytes"]
    difference = _largest_difference(found, alone)
    if "distributed=local" in mode:
        # Every rank has both factors of its rows, of which the one of their columns is as large as for all rows.
        assert difference < 0.1, mode
        assert share < 0.4, mode
        return
    assert difference < (TOLERANCE_OF_BFLOAT16 if "bfloat16" in mode else TOLERANCE), mode
    is_divided = "lossless" in mode or "parallelism.mode" in mode
    assert share == pytest.approx(0.25, abs=0.04) if is_divided else share == 1, mode
