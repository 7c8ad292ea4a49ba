"""Tells the digest and shape of a config's model: `python -m trainers.identity CONFIG [ROOTS]`, with a trial config as
JSON and the directories that it may read.

Prints a `ToldModel`, or why there is none, as a line of `trainers.workloads.messages`. The other end is
`trainers.identity.asking.ask_model`.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # it imports and ends: looking for garbage, now and at the end, takes a third of its time

import json
import sys

import torch

from trainers.config import InvalidConfig, TrialConfig
from trainers.data.roots import DataRoots
from trainers.identity.model import model_digest
from trainers.identity.shape import has_trained, model_shape
from trainers.identity.values import ToldModel
from trainers.workloads.messages import answer
from trainers.workloads.registry import load


def _told() -> ToldModel:
    """The model of the command line.

    Raises:
        InvalidConfig: it cannot be built; the message begins with the field of the config.
    """
    try:
        config = TrialConfig.from_json(json.loads(sys.argv[1]))
        roots = DataRoots.from_json(json.loads(sys.argv[2])) if len(sys.argv) > 2 else None
        workload = load(config.workload, config.workload_options, data_roots=roots)
        with torch.device("meta"):
            model = workload.build_model()
    except InvalidConfig as error:
        raise InvalidConfig("workload", str(error)) from error
    return ToldModel(model_digest(model), model_shape(model) if has_trained(model) else None)


def main() -> int:
    """Runs the command; 0 if the model could be built."""
    torch.set_num_threads(1)
    return answer(_told)


if __name__ == "__main__":
    status = main()
    gc.freeze()
    sys.exit(status)
