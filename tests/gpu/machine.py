"""The machine that figures come from."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import distributions
from pathlib import Path

import torch

from tests.benchmarks import report

ROOT = Path(__file__).parents[2]
PACKAGES = ("numpy", "optuna", "pyarrow", "pytest", "ray", "scikit-learn", "torch", "transformers", "triton")


def environment() -> dict[str, object]:
    """Device, driver, versions, and the commit where there is a repository."""
    found = report.environment()
    versions = {d.metadata["Name"].lower(): d.version for d in distributions() if d.metadata["Name"]}
    found["packages"] = {name: versions[name] for name in PACKAGES if name in versions}
    found["system"] = platform.platform()
    found["commit"] = _output("git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40")
    found["driver"] = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    found["cuda"] = torch.version.cuda
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        found["device_memory_bytes"] = properties.total_memory
        found["compute_capability"] = f"{properties.major}.{properties.minor}"
        found["num_multiprocessors"] = properties.multi_processor_count
    return found


def _output(*command: str) -> str | None:
    """The output of a command; None: it is not here, or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None
