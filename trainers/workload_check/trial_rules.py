"""Rules that take a whole trial, or a second process."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from trainers.config import OptimizerConfig, TrialConfig
from trainers.loop import train
from trainers.ranks.context import single_process_context
from trainers.workload.description import LOOP_METRICS
from trainers.workload.user_workload import printable
from trainers.workload_check.batches import digest_of
from trainers.workload_check.outcome import Broken, NotChecked
from trainers.workload_check.subject import SEED, Subject, first_batches
from trainers.workloads.describe import environment_of_children

NUM_STEPS = 6
EVALUATE_EVERY = 2
"""Both give the shortest trials with a measurement before, at and after the step at which they are resumed."""
OTHER_HASH_SEED = "12345"
"""Python orders sets of texts by a number that each process draws; this one differs from the checker's."""

Curve: TypeAlias = list[tuple[int, Mapping[str, float | None]]]


def check_processes(subject: Subject) -> str:
    """Another process builds the same model and the same batches, as the other ranks of a trial do."""
    own = digests(subject)
    if digests(Subject(subject.name, subject.options, batch_size=subject.batch_size)) != own:
        raise NotChecked("they are not the same in one process")
    found = _digests_of_another_process(subject)
    for what, value in own.items():
        if found[what] != value:
            raise Broken(
                f"another process builds {what} differently",
                "Do not let it depend on the order of a set, hash(), the time or the process: each rank is one",
            )
    return "a second process builds the same model and batches"


def _digests_of_another_process(subject: Subject) -> dict[str, str]:
    """The `digests` from a second process. Raises: Broken: it ends without them."""
    # Files: a pipe would be waited for until all processes that the workload leaves behind have closed it.
    with tempfile.TemporaryFile() as report, tempfile.TemporaryFile() as noise:
        order = {
            "name": subject.name,
            "options": subject.options,
            "batch_size": subject.batch_size,
            "descriptor": report.fileno(),
        }
        status = subprocess.run(
            [sys.executable, "-m", "trainers.workload_check.digests", json.dumps(order)],
            env={**environment_of_children(), "PYTHONHASHSEED": OTHER_HASH_SEED},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=noise,
            pass_fds=[report.fileno()],
            check=False,
        ).returncode
        report.seek(0)
        noise.seek(0)
        found, said = report.read(), noise.read()
    if status != 0 or not found:
        why = printable(said.decode(errors="replace").strip().rpartition("\n")[2], limit=300)
        raise Broken(f"a second process ends with status {status}: {why}", "Each rank is such a process")
    digests_there: dict[str, str] = json.loads(found)
    return digests_there


def digests(subject: Subject) -> dict[str, str]:
    """Digests of what must be the same in every process."""
    model = subject.model()
    return {
        "the model": digest_of(dict(model.state_dict())).hex(),
        "the batches": "".join(digest_of(batch).hex() for batch in first_batches(subject.batches(), 3)),
    }


def check_trials(subject: Subject) -> str:
    """Two trials of one config in one process give the same measurements."""
    one, other = _two_trials(subject)
    if one != other:
        raise Broken(
            "the second of two equal trials in one process gives other numbers",
            "Keep nothing in the class, the module or a global that a trial changes: trials share a process",
        )
    return f"{NUM_STEPS} steps twice, equal in every bit"


def check_resume(subject: Subject) -> str:
    """A trial that goes on from a checkpoint gives the same measurements as one that was never stopped."""
    whole, again = subject.available(lambda: _two_trials(subject), "a trial fails")
    if whole != again:
        raise NotChecked("two equal trials differ")
    with tempfile.TemporaryDirectory() as directory:
        stopped = _run_trial(subject, Path(directory), limit=1)
        resumed = _run_trial(subject, Path(directory))
    if stopped + resumed[1:] != whole:
        raise Broken(
            f"after a resume at step {EVALUATE_EVERY} the measurements are others",
            "What a step depends on must be in the model's parameters and buffers or follow from the step: attributes "
            "of the workload are not in a checkpoint",
        )
    return f"from step {EVALUATE_EVERY} on, equal in every bit"


@lru_cache(maxsize=1)  # two rules look at them
def _two_trials(subject: Subject) -> tuple[Curve, Curve]:
    return _run_trial(subject), _run_trial(subject)


def _run_trial(subject: Subject, directory: Path | None = None, limit: int | None = None) -> Curve:
    description = subject.checked_description
    config = TrialConfig(
        workload=subject.name,
        workload_options=subject.options,
        optimizer=OptimizerConfig("adamw", {"lr": 1e-3}),
        num_steps=NUM_STEPS,
        evaluate_every=EVALUATE_EVERY,
        batch_size=subject.batch_size,
        seed=SEED,
        max_loss=sys.float_info.max,
    )
    measurements = islice(train(config, single_process_context(checkpoint_directory=directory)), limit)
    # The loop also measures time and memory, which differ.
    names = ["train_loss", *(description.metrics.keys() - LOOP_METRICS.keys())]
    return [(m.step, {name: m.metrics.get(name) for name in names}) for m in measurements]
