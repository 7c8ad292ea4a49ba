"""`shampoo-tuner fingerprint`: of files, modules and workloads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.support.service.commands import run


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "net.safetensors"
    save_file({"wte.weight": torch.zeros(9, 4), "h.0.weight": torch.zeros(4, 4), "h.0.bias": torch.zeros(4)}, path)
    return path


def test_a_file_of_weights_has_a_fingerprint_of_names_and_sizes(weights: Path) -> None:
    result = run("fingerprint", str(weights))
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {
        "source": "net.safetensors",
        "workload": None,
        "digest": None,
        "parameters": [["embedding", [9, 4], 1], ["linear", [4, 4], 1], ["vector", [4], 1]],
    }


@pytest.mark.processes
def test_a_workload_is_built_by_another_process() -> None:
    result = run("fingerprint", "digits-convnet", "--option", "width=32", "--option", "size=tiny")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["workload"], found["source"]) == ("digits-convnet", 'digits-convnet width=32 size="tiny"')
    assert ["convolution", [64, 32, 3, 3], 1] in found["parameters"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("--option", "width=3"), "have no effect with a file"), (("--option", "width"), "must be NAME=VALUE")],
)
def test_options_without_effect_are_refused(weights: Path, arguments: tuple[str, ...], message: str) -> None:
    result = run("fingerprint", str(weights), *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())
