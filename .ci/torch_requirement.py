"""Prints the build of torch that pip finds for this machine as a requirement, for an installer that knows PyPI alone.

Where pip is told of builds for the CPU, by its settings, torch comes without gigabytes of CUDA. Prints nothing if the
environment has a torch already.
"""

import json
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

if not any(True for _ in distributions(name="torch")):
    (requirement,) = tomllib.loads(Path("pyproject.toml").read_text())["project"]["dependencies"]
    dry_run = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--no-deps", "--report", "-", requirement]
    report = json.loads(subprocess.run(dry_run, stdout=subprocess.PIPE, check=True).stdout)
    sys.stdout.write(f"torch @ {report['install'][0]['download_info']['url']}\n")
