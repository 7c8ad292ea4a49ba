"""Runs studies and keeps their runs in a file, one JSON object on a line; what stands there is not run again."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from trainers.config import InvalidConfig
from trainers.external_tuning.goals import GOALS
from trainers.external_tuning.protocol import NUM_STUDIES, Run, run, submission, trials
from trainers.ranks.context import single_process_context

REFUSED = 2
"""Exit status, the one that argparse ends with: the arguments or the file of runs are wrong."""


def read_runs(path: Path) -> list[Run]:
    """The runs in a file.

    Raises:
        OSError: it cannot be read.
        ValueError: a line is not a run; the message has its number.
    """
    found: list[Run] = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            found.append(Run.from_json(json.loads(line)))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}:{number}: no run of a study: {error}") from error
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m trainers.external_tuning.run_studies", description=__doc__)
    parser.add_argument("runs", type=Path, help="the file of runs, which is added to")
    parser.add_argument("--submissions", nargs="+", default=["shampoo", "adamw"], help="(default: shampoo adamw)")
    parser.add_argument("--workloads", nargs="+", default=list(GOALS), choices=list(GOALS), help="(default: all)")
    parser.add_argument("--studies", nargs="+", type=int, default=list(range(NUM_STUDIES)), help="(default: all five)")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default: 1)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    try:
        entered = [submission(name) for name in options.submissions]
        done = {run.key for run in read_runs(options.runs)} if options.runs.exists() else set()
    except (InvalidConfig, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return REFUSED
    context = single_process_context()
    with options.runs.open("a") as file:
        for study in options.studies:
            for workload in options.workloads:
                for one in entered:
                    for key, config in trials(one, GOALS[workload], study).items():
                        if key not in done:
                            file.write(json.dumps(run(key, config, context).to_json()) + "\n")
                            file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
