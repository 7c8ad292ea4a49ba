"""The wheel beside torch and nothing else: it trains, and says which extra brings what is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.only_torch import link_torch
from tests.support.waiting import LONG_PATIENCE_SECONDS, PATIENCE_SECONDS
from trainers.workloads.registry import BUILT_IN

pytestmark = pytest.mark.processes(minutes=1)

ROOT = Path(__file__).parents[2]
CONFIG = {
    "workload": "stdlib-gpt",
    "workload_options": {"size": "tiny"},
    "num_steps": 4,
    "evaluate_every": 2,
    "batch_size": 8,
    "optimizer": {"name": "shampoo", "arguments": {"lr": 0.005, "precondition_frequency": 2}},
}
NO_NUMPY = "ignore:Failed to initialize NumPy:UserWarning"
"""torch says so where there is no NumPy, which it does not need."""


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of a virtual environment with our wheel and torch."""
    directory = tmp_path_factory.mktemp("bare")
    environment, wheels, only_torch = directory / "venv", directory / "wheels", directory / "only_torch"
    only_torch.mkdir()
    link_torch(only_torch)
    pip = [sys.executable, "-m", "pip"]
    for command in (
        [sys.executable, "-m", "venv", "--without-pip", str(environment)],
        [*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(wheels), str(ROOT)],
    ):
        subprocess.run(command, check=True, timeout=LONG_PATIENCE_SECONDS)
    python, (wheel,) = environment / "bin" / "python", wheels.iterdir()
    pip += ["--python", str(python), "install", "-q", "--no-deps", str(wheel)]
    subprocess.run(pip, check=True, timeout=LONG_PATIENCE_SECONDS)
    (site,) = (environment / "lib").glob("python*/site-packages")
    (site / "only_torch.pth").write_text(f"{only_torch}\n")
    return environment / "bin"


def _run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONWARNINGS": f"error,{NO_NUMPY}", "OMP_NUM_THREADS": "1", "HOME": str(cwd)}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )


def test_it_trains_and_goes_on_from_a_checkpoint(binaries: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    command: list[str | Path] = [
        binaries / "python",
        "-m",
        "trainers.run",
        "config.json",
        "--checkpoint-directory",
        "checkpoints",
    ]
    whole = _run(*command, cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    assert whole.stderr == ""
    measurements = [json.loads(line) for line in whole.stdout.splitlines()]
    assert [measurement["step"] for measurement in measurements] == [2, 4]
    assert measurements[1]["metrics"]["validation_loss"] < measurements[0]["metrics"]["validation_loss"]
    (newest,) = (tmp_path / "checkpoints").glob("step-*4")
    for file in newest.iterdir():
        file.unlink()
    newest.rmdir()
    resumed = _run(*command, cwd=tmp_path)
    first, last = map(json.loads, resumed.stdout.splitlines())
    assert first == measurements[0], "the checkpoint's own, with its seconds"
    for name in ("train_loss", "validation_loss"):
        assert last["metrics"][name] == measurements[1]["metrics"][name]


PROGRAM = """
import importlib, json, pkgutil, sys
import search_spaces, shampoo, trainers
import trainers.identity.__main__
import trainers.memory.prediction

early = [name for name in ("torch", "torch.distributed.tensor") if name in sys.modules]
from trainers.checkpoints import StoreFailed
from trainers.config import InvalidConfig
from trainers.workloads.registry import BUILT_IN
from trainers.workloads.registry import load

not_imported = {}
for package in (search_spaces, shampoo, trainers):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.startswith("trainers.workloads.") and not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except (ImportError, StoreFailed) as error:
                not_imported[module.name] = str(error)

refused = {}
for name, description in BUILT_IN.items():
    if description.extra is not None:
        options = {option: "/nowhere" for option, what in description.options.items() if what.required}
        try:
            load(name, options)
        except InvalidConfig as error:
            refused[name] = error.message
from trainers.parallel.compression import GradientCompression
from trainers.config import CompressionConfig
try:
    GradientCompression(CompressionConfig(rank=1), seed=0)
except InvalidConfig as error:
    refused["compression"] = error.message
print(json.dumps({"early": early, "not_imported": not_imported, "refused": refused}))
"""


def test_what_needs_more_names_the_extra_that_has_it(binaries: Path, tmp_path: Path) -> None:
    told = _run(binaries / "python", "-c", PROGRAM, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    answer = json.loads(told.stdout)
    assert answer["early"] == ["torch"], "DTensor takes half as long again to import, and a model alone needs none"
    extras = {name: workload.extra for name, workload in BUILT_IN.items() if workload.extra is not None}
    assert extras.keys() == BUILT_IN.keys() - {"stdlib-gpt"}
    assert answer["refused"].keys() == {*extras, "compression"}
    for name, extra in {**extras, "compression": "compression"}.items():
        assert answer["refused"][name].endswith(f"is not installed: pip install 'shampoo-tuner[{extra}]'")
    assert answer["not_imported"].pop("trainers.workload.template") == "No module named 'sklearn'"  # a user's to change
    # What workloads read files with, and is imported by them alone.
    assert answer["not_imported"].pop("trainers.data.files") == "No module named 'platformdirs'"
    assert answer["not_imported"].pop("trainers.data.prepared") == "No module named 'platformdirs'"
    # Imported where a job asks for them, and nowhere else.
    for name, package in {"mlflow_store": "mlflow", "tensorboard": "tensorboardX", "wandb_offline": "wandb"}.items():
        assert answer["not_imported"].pop(f"trainers.trackers.{name}") == f"No module named '{package}'"
    assert answer["not_imported"].keys() == {"trainers.checkpoints.store", "trainers.storage.object_store"}
    assert all("pip install 'shampoo-tuner[stores]'" in message for message in answer["not_imported"].values())


@pytest.mark.parametrize("arguments", ["", "serve", "--help"])
def test_the_command_names_the_missing_extra(binaries: Path, tmp_path: Path, arguments: str) -> None:
    for command in ([binaries / "shampoo-tuner"], [binaries / "python", "-m", "service"]):
        refused = _run(*command, *arguments.split(), cwd=tmp_path)
        assert (refused.returncode, refused.stdout) == (2, "")
        first, second = refused.stderr.splitlines()
        assert first == (
            "shampoo-tuner: this command needs the extra 'service', which is not installed: "
            "pip install 'shampoo-tuner[service]'"
        )
        assert {"fastapi", "ray", "typer"} <= set(second.removeprefix("(missing: ").removesuffix(")").split(", "))


@pytest.mark.parametrize(
    ("arguments", "status", "subject", "extra"),
    [
        (["-c", "from service.client import Client"], 1, "MissingExtra: service.client", "api"),
        (["-m", "trainers.workloads.clicks.generator", "clicks.tsv"], 2, "shampoo-tuner: this command", "clicks"),
    ],
)
def test_a_module_that_a_user_imports_or_runs_names_the_missing_extra(
    binaries: Path, tmp_path: Path, arguments: list[str], status: int, subject: str, extra: str
) -> None:
    refused = _run(binaries / "python", *arguments, cwd=tmp_path)
    assert refused.returncode == status
    assert ("Traceback" in refused.stderr) == (status == 1)
    assert (
        f"{subject} needs the extra '{extra}', which is not installed: pip install 'shampoo-tuner[{extra}]'\n(missing: "
    ) in refused.stderr
