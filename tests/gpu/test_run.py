"""The command for a GPU runs on a CPU from end to end, in small, so that it works when there is a GPU at last."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from service.scheduler.cluster import process_tree
from shampoo.hyperparameters import Preconditioner
from tests.gpu import __main__, kit, training
from tests.gpu.results import SuiteTests
from tests.gpu.speed import MODELS, START_WITH
from tests.support.shampoo.deviations import FLOAT32
from tests.support.shampoo.members import REPRESENTATIVES
from tests.support.trainers.ranks import WarmRanks

ROOT = Path(__file__).parents[2]
COMMAND = ROOT / "tests/gpu/run"
TINY = ("--tiny", "--device", "cpu")


def _run(*arguments: str, out: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(
        [COMMAND, *arguments, "--out", out], env=environment, capture_output=True, text=True, timeout=3600, check=False
    )


def _run_here(monkeypatch: pytest.MonkeyPatch, *arguments: str, out: Path) -> int:
    monkeypatch.setattr(sys, "argv", ["tests.gpu", *arguments, "--out", str(out)])
    return __main__.main()


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def _values(path: Path, kind: str) -> dict[str, dict[str, Any]]:
    return {name: figure["values"] for name, figure in _read(path)["figures"].items() if figure["kind"] == kind}


@pytest.mark.patient
def test_every_stage_runs_on_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = _run("all", *TINY, "--minutes", "50", "--all-minutes", "55", "--markdown", out=tmp_path)
    assert shown.returncode == 0, f"{shown.stdout}\n{shown.stderr}"
    files = {path.stem: path for path in tmp_path.iterdir()}
    assert set(files) == {"correct", "service", *(f"speed-{model}" for model in MODELS)}
    for path in files.values():
        content = _read(path)
        assert content["is_complete"]
        assert content["problems"] == {}
        assert content["left_out"] == {}
        assert content["environment"]["torch"] == torch.__version__

    compared = _values(files["correct"], "Comparison")
    assert {f"against the reference, in float32: {name}" for name in FLOAT32} <= set(compared)
    assert {f"as far from the reference as the CPU: {name}" for name in REPRESENTATIVES} <= set(compared)
    for preconditioner in get_args(Preconditioner):
        assert any(name.startswith(f"against the reference, in float64: {preconditioner}-") for name in compared)
    ranks = {f"ranks like one process: {which}" for which in ("one on gloo", "two on gloo", "two on gloo with fsdp2")}
    assert ranks <= set(compared)
    assert all(0 <= each["deviation"] <= each["limit"] < 2 for each in compared.values())
    # Rounding differs from float64 in float32, and between the means of one rank and of two.
    assert all(compared[f"against the reference, in float32: {name}"]["deviation"] > 1e-9 for name in FLOAT32)
    assert compared["ranks like one process: two on gloo"]["deviation"] > 0
    launches = _values(files["correct"], "Launches")
    assert all(0 < each["ordinary_bytes"] <= each["bytes_with_refresh"] for each in launches.values())
    reads = _values(files["correct"], "HostReads")
    assert len(reads) >= len(get_args(Preconditioner))
    assert all(each["reads"] == [] and each["num_steps"] > 0 for each in reads.values())
    [suite] = _values(files["correct"], "SuiteTests").values()
    assert suite["failed"] == []
    assert suite["num_passed"] + len(suite["skipped"]) >= 8

    [job] = _values(files["service"], "TuningJob").values()
    assert job["state"] == "succeeded"
    assert job["num_completed"] == job["num_trials"] == 2
    assert "from shampoo import Shampoo" in job["recommended"] or "AdamW" in job["recommended"]
    assert 0 < job["activation_bytes"] < job["predicted_bytes"] < job["peak_bytes"]
    [losing] = _values(files["service"], "TrialEnds").values()
    assert losing["ends"] == ["completed", "diverged", "infeasible"]
    [end] = _values(files["service"], "ServiceEnd").values()
    assert end["left_running"] == []

    for model in MODELS:
        times = _values(files[f"speed-{model}"], "StepTimes")
        assert {f"steps of {model}: {member}" for member in get_args(Preconditioner)} <= set(times)
        for each in times.values():
            assert min(each["ordinary_over_adamw"], each["cycle_over_adamw"], each["queue_ms"]) > 0
            assert each["longest_ms"] >= each["cycle_ms"] > 0
            assert each["cycle_over_adamw"] == pytest.approx(each["cycle_ms"] / each["adamw_ms"])
            assert (each["refresh_ms"] is None) == (each["member"] in ("spectral", "none"))
            assert each["peak_bytes"] > each["state_bytes"] + 8 * each["num_parameters"]
        plain, shampoo = (times[f"steps of {model}: {member}"] for member in ("none", "shampoo"))
        assert plain["state_bytes"] == pytest.approx(8 * plain["num_parameters"], rel=0.2)
        assert shampoo["state_bytes"] > plain["state_bytes"]
        assert shampoo["period"] == 50
    assert all(f"\n| {member} | " in shown.stdout for member in START_WITH)

    assert _run_here(monkeypatch, "table", out=tmp_path) == 0
    whole = capsys.readouterr().out
    assert f"torch {torch.__version__}" in whole
    groups = {figure["group"] for path in files.values() for figure in _read(path)["figures"].values()}
    assert {training.TF32, training.WHOLE_STEP, training.RESUMED, training.MEMORY, training.LOST} <= groups
    assert all(f" | {group} | " in whole for group in groups)
    assert "WRONG" not in whole


@pytest.mark.processes
def test_a_file_that_lacks_a_package_keeps_no_other_from_its_tests(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    for name in ("no_package_of_this_name", "math"):
        test = f"import {name}\nimport pytest\n\n\n@pytest.mark.gpu\ndef test_it() -> None:\n    pass\n"
        (tmp_path / "tests" / f"test_{name}.py").write_text(test)
    code = "import sys; from tests.gpu import correct; print(correct.suite_tests('cpu', correct.Path(sys.argv[1])))"
    shown = subprocess.run(
        [sys.executable, "-c", code, tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=600, check=True
    )
    missing = ("tests/test_no_package_of_this_name.py needs the package no_package_of_this_name",)
    assert shown.stdout.splitlines()[-1] == repr(SuiteTests("cpu", 1, (), missing))


@pytest.mark.processes
def test_two_ranks_make_the_report_that_is_to_be_sent(tmp_path: Path) -> None:
    group = WarmRanks(2, tmp_path / "meeting_point")
    found, same = group.run(functools.partial(kit.measure, is_tiny=True), "cpu")
    assert group.stop() == [0, 0]
    assert found["comparisons"] == same["comparisons"]
    assert found["world_size"] == len(found["nodes"]) == 2
    assert {one["what"] for one in found["comparisons"]} == {*kit.WAYS, "checkpoint of all, each goes on alone"}
    assert all(one["deviation"] <= kit.LIMIT for one in found["comparisons"])
    # Of six equal blocks each rank has three.
    assert [one["share_of_state"] for one in found["times"]] == [pytest.approx([0.5, 0.5], abs=0.01)]
    shown = kit.as_markdown(json.loads(json.dumps(found)))
    assert all(" | ".join((one["member"], one["what"])) in shown for one in found["comparisons"])


def test_when_the_time_is_up_the_file_says_what_was_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run_here(monkeypatch, "speed", "gpt2", *TINY, "--minutes", "0", out=tmp_path) == 3
    content = _read(tmp_path / "speed-gpt2.json")
    assert content["figures"] == {}
    assert content["left_out"]["steps of gpt2: soap"] == "the time was up"
    assert "left out: steps of gpt2: soap: the time was up" in capsys.readouterr().out


def test_options_alone_ask_for_all_stages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = process_tree.descendants()
    assert _run_here(monkeypatch, *TINY, "--minutes", "0", out=tmp_path) == 3
    assert process_tree.descendants() <= before, "no figure was begun, and what is to take one imports for seconds"
    assert {path.stem for path in tmp_path.iterdir()} == {"correct", "service", *(f"speed-{model}" for model in MODELS)}
    assert not any(_read(path)["figures"] for path in tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA device")
def test_without_a_gpu_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run_here(monkeypatch, "correct", out=tmp_path) == 1
    assert "there is no CUDA device here" in capsys.readouterr().out
    assert _read(tmp_path / "correct.json")["left_out"] == {"everything": "there is no CUDA device here"}
