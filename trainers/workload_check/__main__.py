"""Checks a workload from the command line: `python -m trainers.workload_check module:Class`.

Prints one line per rule, of skipped ones per reason, or with `--json` all in one object. Exit status: 0 if no rule
failed, 1 otherwise, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from trainers.arguments import count
from trainers.installation.command import INTERRUPTED
from trainers.workload_check.outcome import RuleOutcome, Status
from trainers.workload_check.supervisor import check

DEFAULT_BATCH_SIZE = 12
"""Small, so that workloads of any size are checked quickly; a multiple of `RANKS_DIVISOR`."""
DEFAULT_TIMEOUT_SECONDS = 120.0
"""Time for each rule; the longest, a trial of a few steps on a small model, takes seconds."""
RANKS_DIVISOR = 6
"""Batches must be shared by 1, 2 and 3 ranks."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; gives the exit status."""
    options = _parser().parse_args(arguments)
    outcomes = check(
        options.name,
        dict(options.option),
        batch_size=options.batch_size,
        timeout_seconds=options.timeout,
        num_threads=options.threads,
    )
    found = list(outcomes) if options.json else list(_told(outcomes))
    counts = Counter(outcome.status for outcome in found)
    if options.json:
        sys.stdout.write(json.dumps({"items": [asdict(outcome) for outcome in found]}, indent=2) + "\n")
    else:
        told = [f"{counts[status]} {status}" for status in ("ok", "failed", "warning", "skipped") if counts[status]]
        sys.stdout.write(f"{counts.total()} rules: {', '.join(told)}\n")
    return 1 if counts["failed"] else 0


def _told(outcomes: Iterable[RuleOutcome]) -> Iterator[RuleOutcome]:
    """The outcomes, each printed as it comes; but for rules that were skipped, which follow, those with the same reason
    in one line."""
    skipped: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.status == "skipped":
            skipped.setdefault(outcome.text, []).append(outcome.rule)
        else:
            _tell(outcome.status, outcome.rule, outcome.text)
        yield outcome
    for text, rules in skipped.items():
        alike = len(rules) > 1
        _tell("skipped", f"{len(rules)} rules" if alike else rules[0], f"{text}: {', '.join(rules)}" if alike else text)


def _tell(status: Status, rule: str, text: str) -> None:
    sys.stdout.write(f"{status:<8} {rule:<20} {text}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trainers.workload_check",
        description="Checks that a workload keeps the rules that trials rely on, and says how to mend it.",
        epilog="Exit status: 0 if no rule failed, 1 otherwise.",
    )
    parser.add_argument("name", help="module:Class, found from the current directory, or a registered workload's name")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        type=_option,
        metavar="NAME=VALUE",
        help="an option of the workload; VALUE is JSON or else a text; repeatable",
    )
    parser.add_argument(
        "--batch-size",
        type=_batch_size,
        default=DEFAULT_BATCH_SIZE,
        help=f"examples per step; a multiple of {RANKS_DIVISOR} (default: {DEFAULT_BATCH_SIZE})",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=DEFAULT_TIMEOUT_SECONDS,
        help=f"seconds for each rule (default: {DEFAULT_TIMEOUT_SECONDS:g})",
    )
    parser.add_argument("--threads", type=count, default=1, help="CPU threads (default: 1)")
    parser.add_argument("--json", action="store_true", help="print rule, status and text of each as JSON")
    return parser


def _option(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _batch_size(text: str) -> int:
    value = int(text)
    if value < RANKS_DIVISOR or value % RANKS_DIVISOR:
        raise argparse.ArgumentTypeError(f"must be a multiple of {RANKS_DIVISOR}, got {value}")
    return value


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
