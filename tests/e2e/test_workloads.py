"""Every workload trains as trials of a job, and one under torchrun by the command in trainers/README.md."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from service.client import ApiError, Client
from service.domain import JobState, TrialState
from shampoo import WeightAveraging
from tests.support.readmes import ROOT, text
from tests.support.service.answers import assert_measured, assert_winners_are_downloaded, train_with_snippet
from tests.support.trainers import small_data
from tests.support.waiting import LONG_PATIENCE_SECONDS, run_in_a_session
from trainers.config import TargetConfig, TrialConfig
from trainers.workloads.registry import BUILT_IN

pytestmark = pytest.mark.patient(minutes=3)

UNDER_TORCHRUN = "digits-convnet"
"""Two ranks of the others share warm processes: `tests/trainers/workloads`."""
TUNED_ELSEWHERE = {
    "digits-autoencoder": "tests/e2e/test_readme.py",
    "digits-mlp": "tests/service/behaviour/test_front.py",
}


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """By workload, those with which it trains on a small set of data, decoded by processes of its own."""
    root = tmp_path_factory.mktemp("data")
    return {
        "digits-convnet": {},
        "stdlib-gpt": {},
        "image-folder": {**small_data.write_images(root), "num_workers": 1},
        "text-lm": small_data.write_text(root),
        "click-log": small_data.write_clicks(root),
        "huggingface": small_data.GPT2,
    }


def environment(**variables: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **variables}


def readme_torchrun() -> list[str]:
    """The command of trainers/README.md with two ranks, by this interpreter and with a port of its own."""
    (line,) = re.findall(r"^torchrun (--.*)$", text("trainers/README.md"), re.MULTILINE)
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", *shlex.split(line)]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a service as the README starts one."""
    directory = tmp_path_factory.mktemp("service")
    with (
        (directory / "log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-m", "service", "serve", "--port", "0", "--data-dir", str(directory / "data")],
            env=environment(SHAMPOO_TUNER_CACHE=str(directory / "cache")),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            told = re.match(r"shampoo-tuner is at (http://\S+)", process.stdout.readline())
            assert told is not None
            with Client(told.group(1)) as client:
                yield client
        finally:
            process.terminate()


def job(name: str, options: Mapping[str, Any], **parts: Any) -> dict[str, Any]:
    """A trial of a few steps, on one rank unless `parts` says otherwise."""
    training = {"num_steps": 4, "evaluate_every": 2, "batch_size": 16, **parts.pop("training", {})}
    return {
        "workload": {"name": name, "options": options},
        "budget": {"num_trials": 1},
        "training": training,
        "resources": {"workers_per_trial": 1},
        "pruner": {"name": "none"},
        "baseline": None,
        **parts,
    }


TWO_RANKS = {"workers_per_trial": 2, "cpus_per_worker": 0.5, "parallel_trials": 1}

SHARDED: dict[str, Any] = {
    "resources": TWO_RANKS,
    "training": {
        "precision": "bfloat16",
        "parallelism": {"mode": "fsdp2"},
        "averaging": {"method": "ema", "arguments": {"decay": 0.9}},
        "accumulation_steps": 2,
    },
    "objectives": [{"metric": "best_validation_loss"}],
    "budget": {"num_trials": 2},
    "baseline": {"search_space": "adamw"},
    "confirmation": {"top_k": 1, "num_seeds": 2},
}
"""The parts of a job that shards a model, in 16 bits, averages its weights and keeps those of its winners."""

COMPRESSED: dict[str, Any] = {
    "resources": TWO_RANKS,
    "training": {"num_steps": 8, "compression": {"start_step": 2}},
    "objectives": [{"metric": "seconds_to_target"}],
    "target": {"metric": "validation_loss", "value": 0.69},
    "budget": {"num_trials": 2},
    "search_space": {
        "optimizer": "shampoo",
        "parameters": [
            {"type": "float", "name": "lr", "low": 1e-3, "high": 1e-2, "scale": "log"},
            {"type": "float", "name": "schedule.horizon", "low": 0.5, "high": 2.0},
            {"type": "integer", "name": "compression.rank", "low": 1, "high": 4},
        ],
        "fixed": {"precondition_frequency": 2},
    },
}
"""The parts of a job that searches how long the schedule is and how much gradients are compressed."""

PARTS: dict[str, dict[str, Any]] = {"text-lm": SHARDED, "click-log": COMPRESSED}


@pytest.fixture(scope="module", autouse=True)
def jobs(client: Client, options: dict[str, dict[str, Any]]) -> dict[str, str]:
    """The id of a job by workload. All are queued at first: a run's starts and ends leave other tests time."""
    names = sorted(BUILT_IN.keys() - TUNED_ELSEWHERE.keys())
    return {name: client.submit(job(name, options[name], **PARTS.get(name, {}))).id for name in names}


def test_it_trains_under_torchrun(options: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    config = {
        "workload": UNDER_TORCHRUN,
        "workload_options": options[UNDER_TORCHRUN],
        "optimizer": {"name": "shampoo", "arguments": {"lr": 1e-3, "precondition_frequency": 2}},
        "num_steps": 4,
        "evaluate_every": 2,
        "batch_size": 16,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    result = run_in_a_session(readme_torchrun(), cwd=tmp_path, env=environment(PYTHONPATH=str(ROOT)))
    assert result.returncode == 0, result.stderr
    assert "terminate called" not in result.stderr
    measurements = [json.loads(line) for line in result.stdout.splitlines()]
    assert [measurement["step"] for measurement in measurements] == [2, 4]
    for measurement in measurements:
        assert_measured(measurement["metrics"], UNDER_TORCHRUN)
    manifest = json.loads((tmp_path / "checkpoints" / "step-00000004" / "manifest.json").read_text())["manifest"]
    assert manifest["world_size"] == 2


@pytest.mark.parametrize("name", sorted(BUILT_IN.keys() - TUNED_ELSEWHERE.keys()))
def test_it_trains_as_trials_of_a_job(
    client: Client, jobs: dict[str, str], options: dict[str, dict[str, Any]], name: str
) -> None:
    ended = client.wait(jobs[name], timeout_seconds=LONG_PATIENCE_SECONDS)
    assert ended.state is JobState.SUCCEEDED, ended.failure
    for trial in client.trials(jobs[name]):
        assert trial.state is TrialState.COMPLETED, trial.detail
        assert trial.step == trial.num_steps
        assert_measured(trial.metrics, name)
        assert trial.value == trial.metrics[ended.objectives[0].metric]
    found = client.recommendation(jobs[name])
    assert found.workload_options == options[name]
    train_with_snippet(found.python, name, options[name])


def test_a_job_shards_and_averages_in_16_bits(
    client: Client, jobs: dict[str, str], options: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    client.wait(jobs["text-lm"], timeout_seconds=LONG_PATIENCE_SECONDS)
    trials = list(client.trials(jobs["text-lm"]))
    assert sorted(trial.phase for trial in trials) == ["baseline", *["confirmation"] * 4, "search"]
    for trial in trials:
        assert trial.config["parallelism"] == {"mode": "fsdp2", "shard_size": None}
        losses = [one.metrics["validation_loss"] for one in client.measurements(jobs["text-lm"], trial.number)]
        assert trial.value == min(loss for loss in losses if loss is not None)
    found = client.recommendation(jobs["text-lm"])
    averaging = {"method": "ema", "arguments": {"decay": 0.9}}
    asked = {"precision": "bfloat16", "averaging": averaging, "accumulation_steps": 2}
    assert found.training.items() >= asked.items()
    optimizer = train_with_snippet(found.python, "text-lm", options["text-lm"])
    assert isinstance(optimizer, WeightAveraging)
    assert optimizer.arguments.in_use()["decay"] == 0.9
    assert_winners_are_downloaded(client, jobs["text-lm"], tmp_path)


def test_a_job_searches_the_schedules_length_and_the_compression(client: Client, jobs: dict[str, str]) -> None:
    client.wait(jobs["click-log"], timeout_seconds=LONG_PATIENCE_SECONDS)
    for trial in client.trials(jobs["click-log"]):
        config = TrialConfig.from_json(trial.config)
        assert config.schedule.horizon == trial.parameters["schedule.horizon"]
        assert config.compression is not None
        assert (config.compression.rank, config.compression.start_step) == (trial.parameters["compression.rank"], 2)
        assert config.target == TargetConfig("validation_loss", 0.69, "minimize")
        assert trial.metrics["target_reached"] in (0.0, 1.0)
    found = client.recommendation(jobs["click-log"])
    assert "# Gradients compressed by PowerSGD (rank=" in found.python


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no path": ({"workload": {"name": "image-folder"}}, "workload.options.path", "is required by image-folder: a dir"),
    "unknown option": (
        {"workload": {"name": "digits-mlp", "options": {"units": 3}}},
        "workload.options.units",
        "unknown option of digits-mlp (known: depth, dropout, hidden_sizes, label_smoothing, width), got 3",
    ),
    "unknown metric": (
        {"objectives": [{"metric": "val_loss"}]},
        "objectives[0].metric",
        "no metric 'val_loss' (it has: ",
    ),
    "target without value": (
        {"objectives": [{"metric": "seconds_to_target"}], "target": {"metric": "validation_loss"}},
        "target.value",
        "is required",
    ),
    "hsdp without a shard size": (
        {"training": {"parallelism": {"mode": "hsdp"}}},
        "training.parallelism.shard_size",
        "must be an integer >= 1 with mode hsdp",
    ),
    "indivisible batch": (
        {"training": {"batch_size": 126, "accumulation_steps": 4}},
        "training.batch_size",
        "126 is not divisible by workers_per_trial = 2 times accumulation_steps = 4",
    ),
    "compression of shards": (
        {"training": {"parallelism": {"mode": "fsdp2"}, "compression": {"rank": 2}}},
        "training.compression",
        "is for parallelism mode ddp",
    ),
    "unknown precision": (
        {"training": {"precision": "fp16"}},
        "training.precision",
        "must be 'float32', 'bfloat16' or 'float16'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_is_answered_with_its_field(client: Client, case: str) -> None:
    parts, field, message = REFUSED[case]
    with pytest.raises(ApiError) as refused:
        client.submit({**job("digits-mlp", {}, resources=TWO_RANKS), **parts})
    assert refused.value.status == 422
    (error,) = refused.value.problem.errors
    assert error.field == field
    assert message in error.message


def test_a_path_that_does_not_exist_is_refused_and_named(client: Client) -> None:
    with pytest.raises(ApiError, match=r"workload\.options\.path: there is nothing at 'nowhere/at/all'"):
        client.submit(job("image-folder", {"path": "nowhere/at/all"}, resources={"workers_per_trial": 1}))


@pytest.mark.parametrize(
    ("name", "given", "parts", "field", "message"),
    [
        ("digits-mlp", {}, {"search_space": "lora-rite"}, "search_space", "no trained pair of low-rank factors"),
        (
            "huggingface",
            {"config": {"n_layer": 1}},
            {"baselines": [{"search_space": "lora-rite"}], "budget": {"num_trials": 2}},
            "baselines[0].search_space",
            "the workload huggingface has them with its option lora_rank",
        ),
        (
            "huggingface",
            {"lora_rank": 2, "lora_targets": ["q_prj"]},
            {"search_space": "lora-rite"},
            "workload.options.lora_targets",
            "GPT2LMHeadModel has no layer 'q_prj' that could have an adapter",
        ),
    ],
)
def test_what_no_model_of_the_job_can_be_trained_with_is_refused_and_named(
    client: Client, name: str, given: dict[str, Any], parts: dict[str, Any], field: str, message: str
) -> None:
    body = job(name, given)
    if "baselines" in parts:
        del body["baseline"]
    with pytest.raises(ApiError) as refused:
        client.submit({**body, **parts})
    (error,) = refused.value.problem.errors
    assert error.field == field
    assert message in error.message
