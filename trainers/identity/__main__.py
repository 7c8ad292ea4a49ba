"""Tells the digest of a config's model: `python -m trainers.identity CONFIG [ROOTS]`, with a trial config as JSON and
the directories that it may read.

Prints `{"model": DIGEST, "parameters": SHAPE}`, or `{"refused": WHY}` with status 2. The other end is
`trainers.identity.asking.ask_model`.
"""

from __future__ import annotations

import json
import os
import sys

import torch

from trainers.config import InvalidConfig, TrialConfig
from trainers.data.roots import DataRoots
from trainers.identity.model import model_digest
from trainers.identity.shape import has_trained, model_shape
from trainers.workload.user_workload import explain
from trainers.workloads.registry import load


def main() -> int:
    """Runs the command; 0 if the model could be built."""
    # What a workload prints, however it does it, must not get between the lines of the answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    torch.set_num_threads(1)
    status = 0
    try:
        config = TrialConfig.from_json(json.loads(sys.argv[1]))
        roots = DataRoots.from_json(json.loads(sys.argv[2])) if len(sys.argv) > 2 else None
        workload = load(config.workload, config.workload_options, data_roots=roots)
        with torch.device("meta"):
            model = workload.build_model()
        shape = model_shape(model).to_json() if has_trained(model) else None
        answer = {"model": model_digest(model), "parameters": shape}
    except InvalidConfig as error:
        answer, status = {"refused": str(error)}, 2
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary to a user's own code
        answer, status = {"refused": explain(error)}, 2
    answers.write(json.dumps(answer) + "\n")
    answers.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
