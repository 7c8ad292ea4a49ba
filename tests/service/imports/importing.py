"""The command `import`, run on a job of two parameters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from service.cli.commands import app

SPACE = {
    "optimizer": "shampoo",
    "parameters": [
        {"type": "float", "name": "lr", "low": 1e-4, "high": 1.0, "scale": "log"},
        {"type": "float", "name": "weight_decay", "low": 0.0, "high": 0.5},
    ],
}
JOB: dict[str, Any] = {
    "workload": {"name": "digits-mlp"},
    "search_space": SPACE,
    "baselines": [],
    "confirmation": None,
    "budget": {"num_trials": 8},
    "sampler": {"name": "tpe"},
    "pruner": {"name": "none"},
}


def imported(tmp_path: Path, source: str, *options: str, **fields: Any) -> tuple[dict[str, Any], str]:
    """The job's file that the command writes, and what it says.

    Args:
        fields: of the job.
    """
    job, output = tmp_path / "job.yaml", tmp_path / "new.json"
    job.write_text(json.dumps({**JOB, **fields}))
    output.unlink(missing_ok=True)
    result = CliRunner().invoke(app, ["import", str(job), source, "-o", str(output), *options])
    assert result.exit_code == 0, result.output
    return json.loads(output.read_text()), result.output


def refused(tmp_path: Path, source: str, *options: str, **fields: Any) -> str:
    """The one line in which the command says why it does not import, and writes no file."""
    job, output = tmp_path / "job.yaml", tmp_path / "new.json"
    job.write_text(json.dumps({**JOB, **fields}))
    output.unlink(missing_ok=True)
    result = CliRunner().invoke(app, ["import", str(job), source, "-o", str(output), *options])
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.output.count("\n") == 1
    assert not output.exists()
    return result.output.removeprefix("shampoo-tuner: ").rstrip("\n")
