"""Fits the models of the shipped table's trials, one for each preset, and keeps the hyperparameters for the answers.

python -m tests.benchmarks.answers.fit_pooled    # after `make_knowledge`; seconds
"""

from __future__ import annotations

import json

from service.scheduler.policy.pooled_trials import HYPERPARAMETERS, fitted
from service.transfer.pooled import table_members
from service.transfer.situation import FAMILY_MEMBERS

NUM_DIGITS = 4
"""Decimal digits that are kept, of logarithms."""


def main() -> None:
    """Runs the script."""
    found = {
        name: [round(value, NUM_DIGITS) for value in fitted(members)]
        for name in FAMILY_MEMBERS
        if (members := table_members(name))
    }
    HYPERPARAMETERS.write_text(json.dumps(found) + "\n")
    print(HYPERPARAMETERS, found)


if __name__ == "__main__":
    main()
