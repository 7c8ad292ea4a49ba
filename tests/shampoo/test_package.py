"""The import of the package: what it loads, takes and touches; and its types in a user's script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import shampoo

PACKAGE = Path(shampoo.__file__).parent


def _python(program: str, *, where: Path = PACKAGE.parent) -> str:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONWARNINGS")}
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        cwd=where,
        env=environment,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.processes
def test_importing_it_takes_less_than_three_tenths_of_a_second_of_the_processor() -> None:
    # The processor's time does not depend on other processes; the best of up to three, not on their use of its caches.
    program = """
import time, torch
start = time.process_time()
import shampoo
print(time.process_time() - start)
"""
    assert any(float(_python(program)) < 0.3 for _ in range(3))


@pytest.mark.processes
def test_importing_it_loads_no_module_but_its_own_and_touches_no_process_global_state() -> None:
    # The compiler and the like, which `import torch` leaves out, would take longer than all of this.
    program = """
import gc, json, os, random, signal, sys, threading, warnings
import torch
def state():
    return {
        "random numbers": [torch.get_rng_state().tolist(), hash(random.getstate())],
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads(), threading.active_count()],
        "dtype and device": [str(torch.get_default_dtype()), str(torch.get_default_device())],
        "matmul precision": torch.get_float32_matmul_precision(),
        "TF32": [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32],
        "determinism": [torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.deterministic],
        "gradients": torch.is_grad_enabled(),
        "print options": repr(torch.tensor([1 / 3, 1e9])),
        "warnings": repr(warnings.filters),
        "environment": dict(os.environ),
        "path": sys.path,
        "hooks": [repr(sys.excepthook), repr(signal.getsignal(signal.SIGINT)), len(gc.callbacks)],
        "CUDA": torch.cuda.is_initialized(),
    }
before, modules = state(), set(sys.modules)
import shampoo
touched = [key for key, value in state().items() if value != before[key]]
print(json.dumps([sorted(name for name in set(sys.modules) - modules if name.partition(".")[0] != "shampoo"), touched]))
"""
    assert json.loads(_python(program)) == [[], []]


USER_SCRIPT = """
import json
from typing import Any

import torch
from torch import nn

import shampoo
from shampoo import Diagnostics, Shampoo, WeightAveraging, param_groups

model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
config: dict[str, Any] = json.loads('{"lr": 0.01, "betas": [0.9, 0.95], "preconditioner": "soap"}')
from_json = Shampoo(model.parameters(), **config)
named = Shampoo(model.named_parameters(), lr=0.01, grafting="sgd")
optimizer = Shampoo(
    param_groups(model, precondition_head=True, plain={"lr": 1e-3}),
    lr=0.01,
    betas=(0.9, 0.95),
    preconditioner="kl",
    precondition_frequency=2,
)
averaging = WeightAveraging(optimizer, "ema", decay=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
inputs = torch.randn(32, 8)


def closure() -> float:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs[:, :4])
    loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
    return loss.item()


losses: list[float] = [from_json.step(closure), named.step(closure)]
for _ in range(10):
    closure()
    averaging.step()
    scheduler.step()
with averaging.averaged_weights():
    model(inputs)
state: dict[str, Any] = optimizer.state_dict()
optimizer.load_state_dict(state)
found: Diagnostics = optimizer.diagnostics()
median: float | None = found.condition_median
metrics: dict[str, float] = found.as_metrics()
cost: shampoo.cost.Cost = shampoo.cost.estimate([tuple(p.shape) for p in model.parameters()], preconditioner="soap")
num_bytes: int = cost.state_bytes
assert closure() < losses[0]
"""


@pytest.mark.processes
def test_a_users_script_runs(tmp_path: Path) -> None:
    # The one whose types are checked below.
    _python(USER_SCRIPT, where=tmp_path)


@pytest.mark.processes
def test_a_users_script_passes_strict_type_checking_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    # A closed set of names is checked, and so are the names of arguments.
    wrong = USER_SCRIPT.replace('preconditioner="kl"', 'preconditioner="adam"').replace('grafting="sgd"', 'graft="sgd"')
    # As installed: found beside it, and not checked with this project's settings, which allow calls of what is untyped
    # in torch; `unused-ignore` in the package is for both. Nothing here is of the parts of torch that are skipped.
    (tmp_path / "shampoo").symlink_to(PACKAGE)
    (tmp_path / "script.py").write_text(USER_SCRIPT)
    (tmp_path / "wrong.py").write_text(wrong)
    skipped = ",".join(
        f"torch.{part}.*" for part in ("_dynamo", "_functorch", "_inductor", "ao", "export", "fx", "onnx")
    )
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = true\n[mypy-{skipped}]\nfollow_imports = skip\n")
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir=/dev/null", "script.py", "wrong.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    lines = result.stdout.splitlines()
    assert all(line.startswith("wrong.py:") for line in lines[:-1]), result.stdout
    assert any('Argument "graft" to "Shampoo"' in line and 'expected "Never"' in line for line in lines)
    assert any('Argument "preconditioner" to "Shampoo" has incompatible type' in line for line in lines)
    assert lines[-1] == "Found 2 errors in 1 file (checked 2 source files)"
