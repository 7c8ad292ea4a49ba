"""`shampoo-tuner fingerprint`: of files, modules and workloads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import save_file

from service.store.session import Database
from tests.support.service.commands import in_one_line, run
from tests.support.service.identities import built_identity
from tests.support.service.live import finished_job, running
from tests.support.service.scenarios import specification
from tests.support.service.tuned import ask_ahead
from trainers.identity.kinds import OF_A_FILE
from trainers.identity.values import READING


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
        "options": None,
        "parameters": [
            {"kind": "embedding", "shape": [9, 4], "count": 1},
            {"kind": "linear", "shape": [4, 4], "count": 1},
            {"kind": "vector", "shape": [4], "count": 1},
        ],
        "num_frozen": 0,
        "remarks": [OF_A_FILE],
        "reading": READING,
    }
    assert result.stderr.strip() == OF_A_FILE


def test_what_is_frozen_in_a_file_is_named(weights: Path) -> None:
    result = run("fingerprint", str(weights), "--frozen", "wte.*", "--frozen", "*.bias")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["parameters"] == [{"kind": "linear", "shape": [4, 4], "count": 1}]
    assert found["num_frozen"] == 9 * 4 + 4
    refused = run("fingerprint", str(weights), "--frozen", "wpe.*")
    assert refused.exit_code == 2
    assert "no parameter has a name like 'wpe.*'" in in_one_line(refused.stderr)


@pytest.mark.processes
def test_a_workload_is_built_by_another_process() -> None:
    result = run("fingerprint", "digits-convnet", "--option", "width=32", "--option", "size=tiny")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["options"] == {"width": 32, "size": "tiny"}
    assert (found["workload"], found["source"]) == ("digits-convnet", 'digits-convnet width=32 size="tiny"')
    assert {"kind": "convolution", "shape": [64, 32, 3, 3], "count": 1} in found["parameters"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--option", "width=3"), "Invalid value for --option: have no effect with a file"),
        (("--option", "width"), "must be NAME=VALUE"),
    ],
)
def test_options_without_effect_are_refused(weights: Path, arguments: tuple[str, ...], message: str) -> None:
    result = run("fingerprint", str(weights), *arguments)
    assert result.exit_code == 2
    assert message in in_one_line(result.stderr)


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("text-lm",), "Invalid value for --option: path: is required by text-lm: a text file"),
        (("digits-mlp", "--option", "widht=3"), "Invalid value for --option: widht: unknown option of digits-mlp"),
        (("digits-mlp", "--frozen", "0.*"), "Invalid value for --frozen: digits-mlp is a workload"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(arguments: tuple[str, ...], message: str) -> None:
    result = run("fingerprint", *arguments)
    assert result.exit_code == 2
    assert message in in_one_line(result.stderr)


def test_what_is_asked_of_a_model_that_was_never_tuned_needs_its_file() -> None:
    result = run("recommend", "digits-mlp", "--trials", "3")
    assert result.exit_code == 2
    words = in_one_line(result.stderr)
    assert "Invalid value for --trials: needs --fingerprint FILE" in words
    assert "--job JOB --trial NUMBER" in words


def test_a_model_in_place_of_its_file_is_told_how_to_write_one() -> None:
    result = run("recommend", "--fingerprint", "my_model:Net", "--batch-size", "64", "--num-steps", "100")
    assert result.exit_code == 2
    words = in_one_line(result.stderr)
    assert "no file 'my_model:Net' is here: `shampoo-tuner fingerprint MODEL > FILE` writes one" in words


def test_a_file_with_a_fingerprint_is_answered_with_configs(weights: Path, sqlite_database: Database) -> None:
    path = weights.with_name("net.json")
    path.write_text(run("fingerprint", str(weights)).stdout)
    with running(sqlite_database) as url:
        asked = ("recommend", "--fingerprint", str(path), "--batch-size", "64", "--num-steps", "500", "--url", url)
        result, short, as_json = run(*asked), run(*asked[:5]), run(*asked, "--json")
        as_yaml = run(*asked, "--format", "yaml")
        of_shampoo = (*asked, "--preconditioner", "shampoo")
        theirs, muon = run(*of_shampoo, "--format", "distributed-shampoo"), run(*of_shampoo, "--format", "torch-muon")
        second, sixth = run(*asked, "--place", "2"), run(*asked, "--place", "6")
        of_proxy = run(*asked, "--job", "job_none")
        path.write_text("[]")
        empty = run(*asked)
        path.write_text('{"parameters": NaN}')
        odd = run(*asked)
    assert result.exit_code == 0, result.output
    assert "optimizer = Shampoo(" in result.stdout
    assert "No tuned model" in result.stderr
    assert "5. lr " in result.stderr
    assert len(json.loads(as_json.stdout)["items"]) == 5
    assert (short.exit_code, empty.exit_code, odd.exit_code) == (2, 1, 1)
    items = json.loads(as_json.stdout)["items"]
    assert yaml.safe_load(as_yaml.stdout) == {
        name: value for name, value in items[0].items() if name not in ("python", "formats")
    }
    assert "optimizer = DistributedShampoo(" in theirs.stdout
    assert "Never tried on this model." in theirs.stdout
    assert "cannot be said there: " in theirs.stderr
    assert (muon.exit_code, muon.stdout) == (1, "")
    assert "the config cannot be written as torch-muon: torch.optim.Muon orthogonalises" in muon.stderr
    assert second.stdout.rstrip() == items[1]["python"].rstrip()
    assert sixth.exit_code == 1
    assert "--place 6: the answer has 5 configs" in sixth.stderr
    assert of_proxy.exit_code == 1
    assert "no job 'job_none' has a recommendation" in of_proxy.stderr
    assert "holds no fingerprint" in empty.stderr
    assert "holds no JSON" in odd.stderr


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_a_list_tells_a_job_of_the_shipped_table_and_of_another_learning_rate(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = finished_job(sqlite_database, identity=built_identity(specification()))
    path = tmp_path / "wide.json"
    path.write_text(run("fingerprint", "digits-mlp", "--option", "width=512").stdout)
    asked = {"batch_size": 32, "num_steps": 100, "preconditioner": "shampoo"}
    ask_ahead(monkeypatch, {"fingerprint": json.loads(path.read_text()), **asked})
    with running(sqlite_database) as url:
        result = run(
            *("recommend", "--fingerprint", str(path), "--batch-size", "32", "--num-steps", "100", "--trials", "8"),
            *("--preconditioner", "shampoo", "--url", url),
        )
    assert result.exit_code == 0, result.output
    lines = in_one_line(result.stderr)
    assert f"shampoo of digits-mlp, batch size 128, {job_id}, " in lines
    alone = "digits-mlp width=256, batch size 32, of the table that comes with shampoo-tuner"
    together = f"14 tuned models together, the nearest {alone}"
    for name in (together, alone):
        assert f"shampoo of {name}, 1.0 oct" in lines
    for factor in ("half", "twice"):
        assert f", the first one with {factor} its learning rate" in lines
    assert f"From {together}" in result.stdout.replace("\n#   ", " ")
