"""The README's commands that share one config among four ranks in every way, with the losses of one process."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = next(
    block
    for block in re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    if "gpt.json" in block
)
TOLERANCE = 1e-5
"""Of a loss: sums over ranks run in another order, in float32, and training enlarges that a little."""
TOLERANCE_OF_BFLOAT16 = 1e-3
TIMEOUT_SECONDS = 600


def _measurements(commands: str, directory: Path) -> list[dict[str, float]]:
    """The metrics that the last of the shell's commands prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    environment["PYTHONPATH"] = f"{ROOT}:{environment.get('PYTHONPATH', '')}"
    with subprocess.Popen(
        ["bash", "-ec", commands],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the ranks too
            raise
    assert process.returncode == 0, errors
    metrics: list[dict[str, Any]] = [json.loads(line)["metrics"] for line in output.splitlines()]
    return metrics


def _largest_difference(found: list[dict[str, float]], expected: list[dict[str, float]]) -> float:
    return max(
        abs(ours[name] / theirs[name] - 1)
        for ours, theirs in zip(found, expected, strict=True)
        for name in ("train_loss", "validation_loss")
    )


@pytest.mark.slow
def test_four_ranks_train_in_every_mode_with_the_losses_of_one_process(tmp_path: Path) -> None:
    before, command, rest = BLOCK.partition("python -m trainers.run gpt.json\n")
    alone = _measurements(before + command, tmp_path)
    assert [math.isfinite(metrics["train_loss"]) for metrics in alone] == [True] * 5
    definition, *modes = rest.splitlines()
    assert len(modes) == 7
    state_bytes = alone[-1]["optimizer_state_bytes"]
    for mode in modes:
        found = _measurements(f"{definition}\n{mode}", tmp_path)
        share = found[-1]["optimizer_state_bytes"] / state_bytes
        difference = _largest_difference(found, alone)
        if "distributed=local" in mode:
            # Every rank has both factors of its rows, of which the one of their columns is as large as for all rows.
            assert difference < 0.1, mode
            assert share < 0.4, mode
            continue
        assert difference < (TOLERANCE_OF_BFLOAT16 if "bfloat16" in mode else TOLERANCE), mode
        is_divided = "lossless" in mode or "parallelism.mode" in mode
        assert share == pytest.approx(0.25, abs=0.04) if is_divided else share == 1, mode
