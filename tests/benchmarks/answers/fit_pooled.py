"""Fits the model of the shipped table's trials, and keeps its hyperparameters where answers find them.

python -m tests.benchmarks.answers.fit_pooled    # after `make_knowledge`; seconds
"""

from __future__ import annotations

import json

from service.scheduler.policy.pooled_trials import HYPERPARAMETERS, fitted
from service.transfer.pooled import PRESET, table_members

NUM_DIGITS = 4
"""Decimal digits that are kept, of logarithms."""


def main() -> None:
    """Runs the script."""
    found = [round(value, NUM_DIGITS) for value in fitted(table_members())]
    HYPERPARAMETERS.write_text(json.dumps({PRESET: found}) + "\n")
    print(HYPERPARAMETERS, found)


if __name__ == "__main__":
    main()
