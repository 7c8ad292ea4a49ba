"""`python -m trainers.workload_check.digests ORDER`: what the rule `processes` compares, from another process.

It writes one JSON object to the file descriptor in its order: standard output is for what the workload prints.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # what is imported stays: looking for garbage among it takes a third of all

import json
import os
import sys

from trainers.workload_check.subject import Subject
from trainers.workload_check.trial_rules import digests


def main() -> None:
    """Writes the digests of the workload in the command line."""
    order = json.loads(sys.argv[1])
    found = digests(Subject(order["name"], order["options"], batch_size=order["batch_size"]))
    with os.fdopen(order["descriptor"], "w") as report:
        json.dump(found, report)
    # At once: threads and exit handlers of the workload are of no interest.
    os._exit(0)


if __name__ == "__main__":
    gc.freeze()
    main()
