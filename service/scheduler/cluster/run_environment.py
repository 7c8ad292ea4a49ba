"""The environment of a job's run, which Ray reads when it is imported. Imports nothing of Ray."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

from service.settings import Settings, own_home

RAY_LOG_BYTES = 4 * 2**20
"""Size at which Ray begins a new log: 4 MiB, by judgement, instead of Ray's 512 MiB."""
MACOS_LOOPBACK = "lo0"
DIRECTORY_VARIABLE = "SHAMPOO_RUN_DIRECTORY"
"""Names a run's directory in the environment of each of its processes on this machine, so that they can be found."""


def run_environment(settings: Settings, directory: Path) -> Mapping[str, str]:
    """Environment variables for the process of a run: its settings, and options of Ray and Tune.

    Args:
        directory: for the run's temporary files.
    """
    environment = settings.to_environment() | {
        DIRECTORY_VARIABLE: str(directory),
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONOPTIMIZE": "",  # Ray cannot be imported without docstrings, which 2 removes
        # NumPy's threads: every process of a run would keep one for each CPU of the machine. Torch has its own threads;
        # a rank sets their number by its share of the machine.
        "OPENBLAS_NUM_THREADS": os.environ.get("OPENBLAS_NUM_THREADS", "1"),
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
        "RAY_AIR_NEW_OUTPUT": "0",  # the old output obeys `verbose=0`
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
        "TUNE_GLOBAL_CHECKPOINT_S": "1e9",  # Tune's snapshots are not used: a job is resumed from SQL
    }
    if own_home() is None:
        environment["HOME"] = str(directory)  # without one, Ray cannot be imported
    if settings.cluster_address is None:
        environment |= {
            # A separate token, so that no other user of the machine can run code in the cluster; without it, Ray would
            # write one to the home directory.
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            # With this, Ray takes the loopback address, as it does on a Mac. The address of a network is gone when a
            # laptop changes its network, and the processes would not find each other any more.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            # The size of each log file that Ray keeps for a process; for a rank, of its output before its first trial.
            "RAY_ROTATION_MAX_BYTES": str(RAY_LOG_BYTES),
            "RAY_ROTATION_BACKUP_COUNT": "1",
            # Tune passes it to all trainables; a data loader of Lightning must not be forked with it.
            "PL_DISABLE_FORK": "1",
            # Ray would immediately start a process for each CPU, and end it unused: Tune's trainables and the ranks get
            # others.
            "RAY_prestart_worker_first_driver": "0",
        }
        if sys.platform == "darwin":
            # By itself gloo meets at the address of the machine's name, such as `jane.local`, which may lead nowhere.
            environment["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", MACOS_LOOPBACK)
    return environment
