"""`python -m trainers.workload_check.digests ORDER`: what the rule `processes` compares, from another process."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # what is imported stays: looking for garbage among it, now and at the end, takes a third of all

import json
import sys

from trainers.workload_check.subject import Subject
from trainers.workload_check.trial_rules import digests


def main() -> None:
    """Prints the digests of the workload in the command line as the last line of standard output."""
    order = json.loads(sys.argv[1])
    found = digests(Subject(order["name"], order["options"], batch_size=order["batch_size"]))
    sys.stdout.write(f"\n{json.dumps(found)}\n")


if __name__ == "__main__":
    gc.freeze()
    main()
    gc.freeze()
