"""The folder `shampoo/` copied out of the project trains a user's model, with torch and nothing else to import."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import shampoo
from tests.only_torch import link_torch
from tests.support.waiting import PATIENCE_SECONDS

PACKAGE = Path(shampoo.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder with a copy of the package alone, and one with links to torch and what torch itself needs."""
    alone, only_torch = tmp_path_factory.mktemp("alone"), tmp_path_factory.mktemp("only_torch")
    shutil.copytree(PACKAGE, alone / "shampoo", ignore=shutil.ignore_patterns("__pycache__"))
    link_torch(only_torch)
    return alone, only_torch


def _run(places: tuple[Path, Path], program: str) -> dict[str, object]:
    # Neither site-packages nor the environment nor the working directory: only what is put there.
    alone, only_torch = places
    path = f"import sys; sys.path += [{str(only_torch)!r}, {str(alone)!r}]\n"
    # torch says so where there is no NumPy, which it does not need.
    warnings = ["-W", "error", "-W", "ignore:Failed to initialize NumPy:UserWarning"]
    command = [sys.executable, "-I", "-S", *warnings, "-c", path + program]
    result = subprocess.run(command, capture_output=True, text=True, cwd=alone, timeout=PATIENCE_SECONDS)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    answer: dict[str, object] = json.loads(result.stdout)
    return answer


PROGRAM = """
import copy, io, json
import torch
from torch import nn
from shampoo import Shampoo
from shampoo.averaging import WeightAveraging
from shampoo.cost import estimate
from shampoo.param_groups import param_groups

torch.set_num_threads(1)
torch.manual_seed(0)
inputs = torch.randn(64, 6)
labels = (inputs[:, 0] * inputs[:, 1] > 0).long()

def train(model, optimizer, num_steps):
    losses = []
    for _ in range(num_steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses

def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))

falls, resumes, copies = {}, {}, {}
for name in ("shampoo", "soap", "kl", "spectral", "none"):
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))
    config = {"lr": 0.02, "preconditioner": name}
    optimizer = Shampoo(param_groups(model), **config)
    losses = train(model, optimizer, 30)
    falls[name] = losses[-1] / losses[0]
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    resumed = copy.deepcopy(model)
    other = Shampoo(param_groups(resumed), **config)
    other.load_state_dict(saved["optimizer"])
    twin, twin_optimizer = copy.deepcopy((model, optimizer))
    for m, o in ((model, optimizer), (resumed, other), (twin, twin_optimizer)):
        train(m, o, 12)
    resumes[name], copies[name] = same(model, resumed), same(model, twin)
    optimizer.diagnostics().as_metrics()
    estimate([p.shape for p in model.parameters()], **config)

print(json.dumps({
    "falls": falls, "resumes": resumes, "copies": copies, "file": sys.modules["shampoo"].__file__,
    "path": sys.path,
}))
"""


@pytest.mark.processes
def test_a_copy_of_the_folder_trains_saves_loads_and_copies_with_nothing_but_torch(places: tuple[Path, Path]) -> None:
    alone, _ = places
    answer = _run(places, PROGRAM)
    assert answer["file"] == str(alone / "shampoo" / "__init__.py")
    assert not any("site-packages" in entry for entry in answer["path"])  # type: ignore[attr-defined]  # JSON
    falls = answer["falls"]
    assert isinstance(falls, dict)
    assert len(falls) == 5
    assert all(ratio < 0.7 for ratio in falls.values()), falls
    assert answer["resumes"] == answer["copies"] == dict.fromkeys(falls, True)


@pytest.mark.processes
def test_what_torch_does_not_need_cannot_be_imported_there(places: tuple[Path, Path]) -> None:
    program = """
import importlib.util, json
names = ("pytest", "optuna", "ray", "sqlalchemy", "trainers", "service", "search_spaces", "sklearn", "pydantic")
print(json.dumps({name: importlib.util.find_spec(name) is not None for name in (*names, "torch", "shampoo")}))
"""
    found = _run(places, program)
    assert {name for name, is_there in found.items() if is_there} == {"torch", "shampoo"}


@pytest.mark.slow
def test_the_copy_says_that_it_is_typed(places: tuple[Path, Path]) -> None:
    alone, _ = places
    assert (alone / "shampoo" / "py.typed").read_text() == ""


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_import_is_of_torch_the_standard_library_or_the_package(source: Path) -> None:
    # Also those inside of functions and under TYPE_CHECKING, which no run need reach.
    imported = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"a relative import in line {node.lineno}"
            assert node.module is not None
            imported.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("__import__", "importlib.import_module", "import_module"), node.lineno
    assert imported - set(sys.stdlib_module_names) <= {"torch", "shampoo"}
