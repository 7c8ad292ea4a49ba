"""How many measurements a run stores in a second while 64 trials report, each in a transaction and several in one.

    python -m tests.benchmarks.service.recorder --databases sqlite,postgresql

For each report, what a run's recorder does: the measurement is noted in the journal, which writes what waits. Trials
report in turn. `--batch` lets so many reports wait for one write. Processor seconds are those of this process, to
which SQLite belongs and PostgreSQL's server does not.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from service.scheduler.tune.journal import Journal
from service.scheduler.tune.run_end import Ending
from service.store.migrate import migrate
from service.store.session import Database
from tests.benchmarks.api.process import served_database
from tests.benchmarks.report import Cell, report
from tests.support.service.scenarios import begin_trial, claimed_job
from trainers.config import Measurement

METRICS = ("validation_loss", "validation_accuracy", "train_loss", "tokens_per_second", "step_seconds", "learning_rate")


class Undisturbed:
    """Signals of a run that nothing ends."""

    def ending(self) -> Ending | None:
        return None

    def to_stop(self) -> Set[int]:
        return frozenset()

    def seconds_left(self) -> float:
        return math.inf

    def look_for_room(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Stored:
    """Measurements that were written."""

    per_second: float
    processor_milliseconds: float
    """Processor time for each measurement."""
    longest_milliseconds: float
    """The 99th percentile of the writes."""


def store(journal: Journal, *, trials: int, measurements: int, batch: int, first: int) -> Stored:
    """Writes `measurements`, those of a trial at the steps from `first` on."""
    writes: list[float] = []
    began, processor = time.monotonic(), time.process_time()
    for index in range(measurements):
        step = first + index // trials
        metrics = {name: 1 / (step + place) for place, name in enumerate(METRICS)}
        journal.note(index % trials, Measurement(step=step, epoch=step / 100, seconds=0.1 * step, metrics=metrics))
        if (index + 1) % batch == 0:
            before = time.monotonic()
            journal.flush()
            writes.append(time.monotonic() - before)
    journal.flush()
    seconds, processor = time.monotonic() - began, time.process_time() - processor
    return Stored(
        measurements / seconds, 1000 * processor / measurements, 1000 * statistics.quantiles(writes, n=100)[98]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--databases", default="sqlite,postgresql", help="databases to use (default: both)")
    parser.add_argument("--trials", type=int, default=64, help="trials that report (default: 64)")
    parser.add_argument("--measurements", type=int, default=6400, help="measurements of all of them (default: 6400)")
    parser.add_argument("--batch", default="1,8,64", help="measurements in a transaction (default: 1,8,64)")
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    options = parser.parse_args()

    rows: list[list[Cell]] = []
    figures: dict[str, object] = {"trials": options.trials, "measurements": options.measurements}
    ratios: dict[str, float] = {}
    batches = [int(text) for text in options.batch.split(",")]
    for kind in options.databases.split(","):
        with (
            tempfile.TemporaryDirectory(prefix="recorder-") as directory,
            served_database(kind, Path(directory)) as served,
        ):
            database = Database(served.url)
            migrate(database)
            num_steps = len(batches) * (options.measurements // options.trials + 1)
            lease = claimed_job(
                database,
                budget={"num_trials": options.trials},
                training={"num_steps": num_steps, "evaluate_every": 1},
                baselines=[],
            )
            for number in range(options.trials):
                begin_trial(database, lease, number)
            journal = Journal(database, lease, Undisturbed())
            for place, batch in enumerate(batches):
                found = store(
                    journal,
                    trials=options.trials,
                    measurements=options.measurements,
                    batch=batch,
                    first=1 + place * (num_steps // len(batches)),
                )
                rows.append([kind, batch, found.per_second, found.processor_milliseconds, found.longest_milliseconds])
                figures[f"{kind}_{batch}_per_second"] = found.per_second
                figures[f"{kind}_{batch}_processor_milliseconds"] = found.processor_milliseconds
                if batch == batches[0]:
                    alone = found
            ratios[f"{kind}_last_batch_over_first"] = found.per_second / alone.per_second
            database.close()
    report(
        "recorder",
        columns=("database", "in a transaction", "measurements/s", "processor ms", "p99 of a write ms"),
        rows=rows,
        figures=figures,
        ratios=ratios,
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
