"""The cost of finding out what mattered in a job, how often that is said of noise, and how often prices hold.

    python -m tests.benchmarks.answers.insights --trials 40,2000,10000 --sides 200 --searches 30

Fills jobs of the preset `shampoo` with ended trials whose loss depends on two parameters, and takes the processor
seconds of what a run does then: reading, computing, storing; and those of the charts over one parameter and two. Then
it asks sides of 40 trials whose values are noise alone: "beyond chance" is to be said of 1 in 20 of them.
Last, it prices cheaper settings in searches of 16 and 40 trials, at random or made by `auto`, whose loss and time of a
step follow a known law with noise of 1% and 5%: nine in ten of the intervals are to hold the truth.
"""

from __future__ import annotations

import argparse
import itertools
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from search_spaces import Scalar, SearchSpace, preset
from service.api.routers.of_jobs.insights import read_map, read_slice
from service.domain import Direction, FailureReason, TrialState
from service.scheduler.insights.compared import EndedTrial
from service.scheduler.insights.keeper import InsightsKeeper
from service.scheduler.insights.of_side import insights_of_side
from service.store.migrate import migrate
from service.store.session import Database
from tests.benchmarks.report import report
from tests.support.service.scenarios import claimed_job, store_trials
from tests.support.service.searching.priced_search import holds, prices, searched, true_changes

NOISY_TRIALS = 40


def position(space: SearchSpace, values: dict[str, Scalar], name: str) -> float:
    """The place of a parameter's value in its range, 0 to 1."""
    return next(one for one in space.active(values) if one.name == name).to_unit(values[name])  # type: ignore[arg-type]


def fill(database: Database, job_id: str, count: int) -> None:
    """Ended trials at random points: high learning rates diverge, and the worse half is pruned."""
    space, rng, rows = preset("shampoo"), random.Random(0), list[dict[str, object]]()
    for _ in range(count):
        values = space.sample(rng)
        lr, decay = position(space, values, "lr"), position(space, values, "weight_decay")
        value = (lr - 0.5) ** 2 + 0.2 * decay + rng.gauss(0, 0.02)
        row: dict[str, object] = {"parameters": values, "value": value}
        if lr > 0.85:
            row |= {"value": None, "state": TrialState.FAILED, "reason": FailureReason.DIVERGED}
        elif value > 0.15:
            row |= {"state": TrialState.PRUNED, "step": 10}
        rows.append(row)
    store_trials(database, job_id, rows)


def cpu_seconds(work: Callable[[], object]) -> float:
    """Processor time that the work takes of this process and its threads."""
    began = time.process_time()
    work()
    return time.process_time() - began


def costs(count: int) -> dict[str, float]:
    """Processor seconds at so many trials."""
    with tempfile.TemporaryDirectory() as directory:
        database = Database(f"sqlite:///{directory}/store.sqlite3")
        migrate(database)
        lease = claimed_job(database, budget={"num_trials": count})
        fill(database, lease.job_id, count)
        found = {"look": cpu_seconds(lambda: InsightsKeeper(database, lease).look())}
        with database.reading() as session:
            found["slice"] = cpu_seconds(lambda: read_slice(session, lease.job_id, "lr"))
            found["map"] = cpu_seconds(lambda: read_map(session, lease.job_id, "lr", "weight_decay"))
        database.close()
    return found


def false_alarms(num_sides: int) -> int:
    """Number of sides of noise where a parameter seems to matter beyond chance."""
    space, alarms = preset("shampoo"), 0
    for seed in range(num_sides):
        rng = random.Random(seed)
        trials = [
            EndedTrial(str(number), number, TrialState.COMPLETED, None, space.sample(rng), rng.gauss(0, 1), 1.0)
            for number in range(NOISY_TRIALS)
        ]
        found = insights_of_side("search", space, trials, Direction.MINIMIZE, {})
        alarms += any(one.importance is not None and one.importance.is_beyond_chance for one in found.parameters)
    return alarms


def coverage(num_searches: int, *, count: int, noise: float, by_auto: bool) -> dict[str, float]:
    """How often the intervals of the price of a setting hold the truth, where it changes the loss and where not."""
    told: dict[str, list[bool]] = {"loss": [], "step": [], "false": []}
    for seed, effect in itertools.product(range(num_searches), (0.0, 0.1)):
        for setting in prices(searched(count, effect, noise=noise, seed=seed, by_auto=by_auto)):
            of_loss, of_step = true_changes(setting, effect)
            if setting.objective is not None:
                told["loss"].append(holds(setting.objective, of_loss))
                told["false"] += [setting.objective.is_seen] if of_loss == 0 else []
            if setting.step_seconds is not None:
                told["step"].append(holds(setting.step_seconds, of_step))
    return {name: sum(found) / max(1, len(found)) for name, found in told.items()} | {"prices": len(told["loss"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", default="40,2000,10000", help="trials of each job (default: 40,2000,10000)")
    parser.add_argument("--sides", type=int, default=200, help="sides of noise (default: 200)")
    parser.add_argument("--searches", type=int, default=30, help="searches of each kind that are priced (default: 30)")
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    options = parser.parse_args()

    first = cpu_seconds(lambda: false_alarms(1))  # with scikit-learn's import
    alarms = false_alarms(options.sides)
    priced: dict[str, object] = {}
    for by_auto, count, noise in itertools.product((False, True), (16, 40), (0.01, 0.05)) if options.searches else ():
        found = coverage(options.searches, count=count, noise=noise, by_auto=by_auto)
        name = f"{count} trials {'of auto' if by_auto else 'at random'}, noise {noise:.0%}"
        print(
            f"{name}: of {found['prices']} intervals of the loss {found['loss']:.0%} hold the truth, of those of the "
            f"step {found['step']:.0%}; a difference is seen in {found['false']:.0%} of those without one"
        )
        priced[name] = found
    figures: dict[str, object] = {
        "first_look_seconds": first,
        "false_alarms": alarms,
        "sides": options.sides,
        "prices": priced,
    }
    rows: list[tuple[str | float, ...]] = []
    for count in map(int, options.trials.split(",")):
        found = costs(count)
        figures[str(count)] = found
        rows.append((count, *found.values()))
    report(
        "insights",
        columns=("trials", "s of CPU for a look", "for a chart over one parameter", "over two"),
        rows=rows,
        figures=figures,
        ratios={"false_alarms_over_sides": alarms / max(1, options.sides)},
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
