"""The process that runs the rules: what the workload does to it, it does not do to the checker.

`python -m trainers.workload_check.child ORDER`, started by the supervisor. It writes one JSON object per line to the
file descriptor in its order: first the rules' names, then for each rule that it began, and its outcome.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # what is imported stays: looking for garbage among it takes a sixth of the start

import json
import os
import sys
import warnings
from dataclasses import asdict
from typing import Any

import torch

from trainers.workload.user_workload import explain, printable
from trainers.workload_check.outcome import Broken, Doubtful, NotChecked, RuleOutcome
from trainers.workload_check.rules import RULES, Rule
from trainers.workload_check.subject import Subject

MAX_TEXT = 1000
"""Characters of an outcome: a terminal shows it in one piece."""
_SEE_ERROR = "Run that by itself to see the whole error"


def main() -> None:
    """Runs the rules of the order from the command line."""
    order = json.loads(sys.argv[1])
    report = os.fdopen(order["descriptor"], "w", buffering=1)

    def tell(**event: Any) -> None:
        report.write(json.dumps(event) + "\n")

    torch.set_num_threads(order["threads"])
    warnings.simplefilter("ignore")  # of the user's libraries; they are no part of the report
    tell(rules=[{"name": rule.name, "is_foundation": rule.is_foundation} for rule in RULES])
    subject = Subject(order["name"], order["options"], batch_size=order["batch_size"])
    for rule in RULES[order["first"] :]:
        tell(began=rule.name)
        tell(outcome=asdict(outcome_of(rule, subject)))
    report.flush()
    # At once: threads and exit handlers of the workload are of no interest.
    os._exit(0)


def outcome_of(rule: Rule, subject: Subject) -> RuleOutcome:
    """The outcome of a rule; an exception of the workload is a failure of the rule."""
    try:
        return RuleOutcome(rule.name, "ok", printable(rule.check(subject), limit=MAX_TEXT))
    except Broken as broken:
        return RuleOutcome(rule.name, "failed", printable(str(broken), limit=MAX_TEXT))
    except Doubtful as doubtful:
        return RuleOutcome(rule.name, "warning", printable(str(doubtful), limit=MAX_TEXT))
    except NotChecked as reason:
        return RuleOutcome(rule.name, "skipped", printable(str(reason), limit=MAX_TEXT))
    except BaseException as error:  # noqa: BLE001 - the boundary to a user's own code
        return RuleOutcome(rule.name, "failed", f"{explain(error)}. {_SEE_ERROR}")


if __name__ == "__main__":
    gc.freeze()
    gc.enable()
    main()
