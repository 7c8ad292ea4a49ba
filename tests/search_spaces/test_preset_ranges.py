"""The benchmark of the presets' ranges: what it searches in their place, and what it does not search twice."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from search_spaces import Float, preset
from tests.benchmarks.training import preset_ranges

SMALL = ["--steps", "2", "--trials", "2", "--seeds", "2", "--repeats", "1"]


def test_a_parameter_that_the_preset_does_not_search_is_added_as_shampoo_has_it() -> None:
    soap = preset_ranges.with_ranges(preset("soap"), {"epsilon": (1e-8, 1e-7)})
    added = soap.parameters[-1]
    assert soap.parameters[:-1] == preset("soap").parameters
    assert isinstance(added, Float)
    assert (added.name, added.low, added.high, added.scale, added.default) == ("epsilon", 1e-8, 1e-7, "log", 1e-7)


def test_a_number_that_neither_searches_is_refused() -> None:
    with pytest.raises(ValueError, match="the preset searches no momentum"):
        preset_ranges.with_ranges(preset("kl"), {"momentum": (0.8, 0.99)})


@pytest.mark.slow
def test_searches_begin_with_the_learning_rate_for_their_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    winners = _run(tmp_path / "log", ["--trials", "1", "--seeds", "1", "--steps", "2"], monkeypatch)
    assert {found["winner"]["parameters"]["lr"] for found in winners} == {0.016}


@pytest.mark.slow
def test_the_log_spares_the_presets_own_searches_and_all_workloads_are_taken_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    workloads = ["--workloads", "digits-mlp", "digits-convnet"]
    _run(log, [*SMALL, *workloads, "--other", "lr=1e-3:1e-2"], monkeypatch)
    winners = _run(log, [*SMALL, *workloads, "--other", "lr=1e-4:1"], monkeypatch)
    searched = [(found["of"]["workload"], found["of"]["seed"], tuple(found["of"]["other"])) for found in winners]
    assert len(searched) == len(set(searched)) == 2 * 2 * 3
    assert sum(1 for _, _, other in searched if not other) == 4

    printed = json.loads(capsys.readouterr().out.splitlines()[-1])["ratios"]
    product = printed["other_over_ours.digits-mlp"] * printed["other_over_ours.digits-convnet"]
    assert printed["other_over_ours.all"] ** 2 == pytest.approx(product)


def _run(log: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The winners that the log has after a run with AdamW, whose trials are the fastest."""
    command = ["preset_ranges", "--preset", "adamw", "--workloads", "digits-mlp", "--log", str(log), *arguments]
    monkeypatch.setattr(sys, "argv", command)
    preset_ranges.main()
    return [json.loads(line) for line in log.read_text().splitlines()]
