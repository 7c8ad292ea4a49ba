"""The command, as a user runs it: processes, standard output and exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.trainers.broken_workloads import SoundStream
from tests.support.trainers.trials import determined, small_trial
from tests.support.waiting import run_in_a_session, started
from trainers.config import OptimizerConfig, TrialConfig
from trainers.run import DIVERGED, DONE, FAILED, REFUSED, main

pytestmark = pytest.mark.processes

DIVERGING = small_trial(OptimizerConfig("sgd", {"lr": 1e6}))


class LeavesOnTheLastRank(SoundStream):
    """A workload that calls `sys.exit(3)` on the last rank."""

    def train_batches(self, *, rank: int, world_size: int, **arguments: Any) -> Iterator[Any]:
        if rank == world_size - 1:
            sys.exit(3)
        return super().train_batches(rank=rank, world_size=world_size, **arguments)


def leaving_trial() -> TrialConfig:
    """A trial of the workload that leaves."""
    workload = f"{LeavesOnTheLastRank.__module__}:{LeavesOnTheLastRank.__name__}"
    config = replace(small_trial("adamw", num_steps=9), workload=workload, workload_options={}, batch_size=12)
    return replace(config, evaluate_every=3)


def config_file(directory: Path, config: TrialConfig) -> str:
    path = directory / "config.json"
    path.write_text(json.dumps(config.to_json()))
    return str(path)


def measurements(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def torchrun(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Two ranks; `tests/e2e/test_workloads.py` runs two to a good end."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "trainers.run", *arguments]
    return run_in_a_session(command, env=_environment())


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def test_a_trial_prints_its_measurements_and_ends_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([config_file(tmp_path, small_trial())]) == DONE
    lines = measurements(capsys.readouterr().out)
    assert [line["step"] for line in lines] == [10, 20, 30, 40]
    assert set(lines[0]) == {"step", "epoch", "seconds", "metrics", "remarks"}


def test_checkpoints_lie_where_a_uri_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [config_file(tmp_path, small_trial()), "--checkpoint-directory"]
    assert main([*arguments, (tmp_path / "store").as_uri()]) == DONE
    assert len(list((tmp_path / "store").glob("step-*/manifest.json"))) == 2
    assert main([*arguments, "s3://bucket/x?colour=red"]) == FAILED
    assert "s3://bucket/x?colour=*** cannot be used: " in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*arguments, "s3://key:hidden@bucket/x"])
    refusal = capsys.readouterr().err
    assert "argument --checkpoint-directory: s3://***@bucket/x has credentials in it" in refusal
    assert "hidden" not in refusal


def test_fields_are_changed_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = config_file(tmp_path, small_trial())
    changed = small_trial(OptimizerConfig("adamw", {"lr": 3e-3, "betas": [0.8, 0.9]}), num_steps=20)
    arguments = ["--set", "num_steps=20", "--set", "optimizer.arguments.betas=[0.8, 0.9]", "--set", "averaging=null"]
    assert main([path, *arguments]) == DONE
    found = measurements(capsys.readouterr().out)
    assert main([config_file(tmp_path, changed)]) == DONE
    for one, other in zip(found, measurements(capsys.readouterr().out), strict=True):
        assert determined(one["metrics"]) == determined(other["metrics"])
    assert main([path, "--set", "parallelism.mode=fsdp"]) == REFUSED
    assert "parallelism.mode: must be one of" in capsys.readouterr().err
    assert main([path, "--set", "workload.name=digits-mlp"]) == REFUSED
    told = "cannot be set to 'digits-mlp': there is no object that could hold 'name'"
    assert capsys.readouterr().err == f"refused: workload.name: {told}\n"


def test_a_diverged_trial_ends_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([config_file(tmp_path, DIVERGING)]) == DIVERGED
    assert capsys.readouterr().err.startswith("diverged at step 2: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "must be an object"),
        (f'{{"workload_options": {"[" * 100_000}{"]" * 100_000}}}', "is nested too deeply"),
        (json.dumps({**small_trial().to_json(), "num_steps": 0}), "num_steps: must be an integer >= 1, got 0"),
        (json.dumps({**small_trial().to_json(), "workload": "x"}), "workload: unknown workload 'x'"),
        (
            json.dumps({**small_trial().to_json(), "workload_options": {"dropout": 2}}),
            "workload_options.dropout: dropout must be",
        ),
        (
            json.dumps({**small_trial().to_json(), "optimizer": {"name": "adamw", "arguments": {"rate": 1}}}),
            "optimizer.arguments.rate: unknown argument of adamw (known: lr, ",
        ),
    ],
)
def test_a_bad_config_ends_with_2_and_the_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    assert main([str(path)]) == REFUSED
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--threads", "0"], "argument --threads: must be at least 1, got 0"),
        (["--threads", "-1"], "argument --threads: must be at least 1, got -1"),
        (["--checkpoint-directory", ""], "argument --checkpoint-directory: an empty text names no place"),
        (["--set", f"workload_options={'[' * 100_000}"], "the value of workload_options is nested too deeply"),
    ],
)
def test_a_wrong_argument_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as refused:
        main([config_file(tmp_path, small_trial()), *arguments])
    assert refused.value.code == REFUSED
    assert message in capsys.readouterr().err


def test_a_device_that_is_not_there_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main([config_file(tmp_path, small_trial()), "--device", "cuda"]) == REFUSED
    assert capsys.readouterr().err == "refused: --device cuda: torch finds no CUDA device on this machine\n"


def test_a_model_that_cannot_be_built_of_the_options_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise ValueError("the weights are cut short")

    monkeypatch.setattr("trainers.workloads.digits.digits.DigitsMLP.build_model", refuse)
    assert main([config_file(tmp_path, small_trial())]) == REFUSED
    assert "refused: workload_options: refused by digits-mlp: the weights are cut short" in capsys.readouterr().err


def test_a_missing_file_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nothing.json")]) == REFUSED
    assert "nothing.json" in capsys.readouterr().err


def test_the_checkpoints_of_another_trial_end_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = ["--checkpoint-directory", str(tmp_path / "checkpoints")]
    assert main([config_file(tmp_path, small_trial(num_steps=10)), *directory]) == DONE
    assert main([config_file(tmp_path, small_trial(num_steps=20)), *directory]) == REFUSED
    assert "num_steps 10 there, 20 here" in capsys.readouterr().err


def test_a_checkpoint_that_cannot_be_written_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    directory = ["--checkpoint-directory", str(tmp_path / "file" / "checkpoints")]
    assert main([config_file(tmp_path, small_trial()), *directory]) == FAILED
    assert capsys.readouterr().err.startswith("checkpoint of step 10 in ")


@pytest.mark.parametrize(
    ("name", "message"),
    [(".", "' is no regular file"), ("missing/w", "No such file or directory"), ("config.json/w", "Not a directory")],
)
def test_weights_that_cannot_be_written_are_refused_before_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    path = config_file(tmp_path, small_trial())
    assert main([path, "--weights", str(tmp_path / name)]) == REFUSED
    captured = capsys.readouterr()
    assert captured.err.startswith("refused: --weights: ")
    assert message in captured.err
    assert captured.out == ""
    assert [file.name for file in tmp_path.iterdir()] == ["config.json"]


def test_weights_that_cannot_be_written_any_more_end_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "w").mkdir()
    monkeypatch.setattr("trainers.run.check_weights_file", lambda _: None)
    assert main([config_file(tmp_path, small_trial()), "--weights", str(tmp_path / "w")]) == FAILED
    captured = capsys.readouterr()
    assert len(measurements(captured.out)) == 4
    assert captured.err.startswith(f"the weights cannot be written to {tmp_path / 'w'}: ")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["config.json", "w"]


def test_batches_that_end_end_with_1_and_the_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workload = "tests.support.trainers.broken_workloads:EndsWithTheEpoch"
    config = replace(small_trial("adamw", num_steps=9), workload=workload, workload_options={}, batch_size=12)
    config = replace(config, evaluate_every=3)
    assert main([config_file(tmp_path, config)]) == FAILED
    captured = capsys.readouterr()
    assert [line["step"] for line in measurements(captured.out)] == [3]
    assert captured.err.startswith(f"the batches of {workload} end before step 5 of 9: they must be endless")


def test_a_workload_that_exits_ends_with_1_and_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([config_file(tmp_path, leaving_trial())]) == FAILED
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("rank 0 failed in code of the workload: it called sys.exit(3) (test_run.py, line ")


def test_torchrun_reports_the_rank_whose_workload_exits(tmp_path: Path) -> None:
    result = torchrun(config_file(tmp_path, leaving_trial()))
    assert result.returncode == 1
    assert "rank 1 failed in code of the workload: it called sys.exit(3) (" in result.stderr
    assert "rank 0 failed" not in result.stderr


def test_a_killed_trial_goes_on_in_a_new_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = small_trial("shampoo", num_steps=400, workload_options={"hidden_sizes": [32, 16], "dropout": 0.2})
    path = config_file(tmp_path, config)
    command = [sys.executable, "-m", "trainers.run", path, "--checkpoint-directory", str(tmp_path / "checkpoints")]
    with started(command, stdout=subprocess.PIPE, env=_environment()) as process:
        assert process.stdout is not None
        before = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.kill()
    assert main(command[3:]) == DONE
    after = capsys.readouterr().out
    assert main([path]) == DONE
    whole = {line["step"]: determined(line["metrics"]) for line in measurements(capsys.readouterr().out)}
    resumed = {line["step"]: determined(line["metrics"]) for line in measurements(after)}
    heard = {line["step"]: determined(line["metrics"]) for line in before}
    assert heard == {step: whole[step] for step in (10, 20, 30)}
    assert 20 <= min(resumed) < 400  # the last checkpoint heard of may have been under way to the disk
    assert resumed == {step: metrics for step, metrics in whole.items() if step >= min(resumed)}


def test_torchrun_reports_a_diverged_trial(tmp_path: Path) -> None:
    result = torchrun(config_file(tmp_path, DIVERGING))
    assert result.returncode == 1
    assert result.stdout == ""
    assert "diverged at step 2: " in result.stderr
    assert "exitcode  : 3" in result.stderr
    assert "terminate called" not in result.stderr
