"""The gain of a search from a first trial that follows the length of the training: `preset(name, num_steps=...)`.

    python -m tests.benchmarks.training.first_values --log searches.jsonl    # hours on two cores; goes on from the log
    python -m tests.benchmarks.training.first_values --presets shampoo adamw --trials 8
    python -m tests.benchmarks.training.first_values --quick                 # to see that it works: no figures to quote

For each workload, number of steps, preset and seed, two searches by `auto` of whole trainings begin as a job does, with
the defaults of the space's branches: those of the preset for long trainings, and those for trainings of this length.
What counts is the least validation loss at a trial's end so far; the trials of both searches have one seed.

    first_over_default.P.N    loss of the search of preset P with values for the length after N trials over that of the
                              other search, geometric mean over workloads, lengths and seeds: below 1 it is ahead
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from search_spaces import SearchSpace, preset
from service.domain import Direction, FailureReason, TrialState
from service.scheduler.policy.searching.auto import AutoSearch
from service.scheduler.policy.searching.phase_search import New, TrialOutcome
from tests.benchmarks.report import Cell, report
from tests.benchmarks.training.training_runs import Task, Trainers
from tests.benchmarks.training.tuning import recipe

PRESETS = ("shampoo", "soap", "kl", "spectral", "adamw", "muon", "family")
LENGTHS = {
    "digits-mlp": (60, 240, 960),
    "digits-autoencoder": (60, 240),
    "digits-convnet": (60, 240),
    "stdlib-gpt": (60,),
}
"""Numbers of steps by workload; longer runs of the others take hours."""
AFTER = (1, 2, 4, 8, 16)
DIVERGED = 20.0
"""Times the least loss that both searches found: what counts while nothing else is complete."""


@dataclass(frozen=True, slots=True)
class Search:
    """One search."""

    workload: str
    num_steps: int
    preset: str
    seed: int
    by_length: bool
    """Whether its first values follow from the number of steps."""

    @property
    def space(self) -> SearchSpace:
        return preset(self.preset, num_steps=self.num_steps if self.by_length else None)


def losses_of(search: Search, num_trials: int, trainers: Trainers) -> list[float]:
    """The validation loss at the end of every trial, infinite where it diverged."""
    space, task = search.space, Task(search.workload, num_steps=search.num_steps, num_evaluations=1)
    policy = AutoSearch(space, direction=Direction.MINIMIZE, max_steps=search.num_steps, pauses=False, seed=search.seed)
    starts, losses = space.branch_defaults(), list[float]()
    for number in range(num_trials):
        if number < len(starts):
            parameters = starts[number]
            policy.begin(number, parameters)
        else:
            chosen = policy.choose(number, may_start=True)
            assert isinstance(chosen, New), "without pauses there is nothing to go on with"
            parameters = dict(chosen.parameters)
        loss = trainers.start(task.config(recipe(space, parameters), seed=search.seed)).result().final
        losses.append(loss)
        if math.isfinite(loss):
            policy.report(number, search.num_steps, loss)
            outcome = TrialOutcome(TrialState.COMPLETED, None, (loss,), ((search.num_steps, loss),))
        else:
            outcome = TrialOutcome(TrialState.FAILED, FailureReason.DIVERGED, (), ())
        policy.finish(number, outcome)
    return losses


def searched(
    searches: Sequence[Search], num_trials: int, log: Path | None, *, num_processes: int
) -> dict[Search, list[float]]:
    """The losses of every search; those that the log has at that length are not run again."""
    found: dict[Search, list[float]] = {}
    if log is not None and log.exists():
        for line in map(json.loads, log.read_text().splitlines()):
            if len(line["losses"]) >= num_trials:
                losses = (math.inf if loss is None else loss for loss in line["losses"][:num_trials])
                found[Search(**line["search"])] = list(losses)
    with Trainers(num_processes) as trainers, ThreadPoolExecutor(num_processes) as threads:
        left = {
            threads.submit(losses_of, search, num_trials, trainers): search
            for search in searches
            if search not in found
        }
        for future in as_completed(left):
            search = left[future]
            found[search] = future.result()
            losses_or_none = [loss if math.isfinite(loss) else None for loss in found[search]]
            text = json.dumps({"search": asdict(search), "losses": losses_or_none})
            print(text, file=sys.stderr)
            if log is not None:
                with log.open("a") as file:
                    file.write(text + "\n")
    return {search: found[search] for search in searches}


def logarithms(ours: Sequence[float], theirs: Sequence[float], after: Sequence[int]) -> list[float]:
    """The logarithm of the one's least loss over the other's, after so many trials."""
    worst = DIVERGED * min(*ours, *theirs)
    return [math.log(min(*ours[:n], worst) / min(*theirs[:n], worst)) for n in after]


def main() -> None:
    """Runs the searches that the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--presets", nargs="+", choices=PRESETS, default=list(PRESETS))
    parser.add_argument("--workloads", nargs="+", choices=list(LENGTHS), default=list(LENGTHS))
    parser.add_argument("--trials", type=int, default=max(AFTER), help="trials of each search")
    parser.add_argument("--seeds", type=int, default=2, help="pairs of searches for each preset, workload and length")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--log", type=Path, help="a line of JSON for each search, as soon as it is there")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.quick:
        given.presets, given.workloads, given.trials, given.seeds = ["shampoo"], ["digits-mlp"], 2, 1
    pairs = [
        (Search(workload, num_steps, name, seed, True), Search(workload, num_steps, name, seed, False))
        for seed, workload, name in itertools.product(range(given.seeds), given.workloads, given.presets)
        for num_steps in (LENGTHS[workload][:1] if given.quick else LENGTHS[workload])
    ]
    losses = searched([one for pair in pairs for one in pair], given.trials, given.log, num_processes=given.processes)
    after = [number for number in AFTER if number <= given.trials]
    by_preset: dict[str, list[list[float]]] = {}
    rows: list[list[Cell]] = []
    for ours, theirs in pairs:
        found = logarithms(losses[ours], losses[theirs], after)
        by_preset.setdefault(ours.preset, []).append(found)
        rows.append([ours.workload, ours.num_steps, ours.preset, ours.seed, *(math.exp(one) for one in found)])
    ratios = {
        f"first_over_default.{name}.{number}": math.exp(statistics.fmean(one[place] for one in found))
        for name, found in by_preset.items()
        for place, number in enumerate(after)
    }
    report(
        "first_values",
        columns=["workload", "steps", "preset", "seed", *(f"after {number}" for number in after)],
        rows=rows,
        figures={"losses": [{**asdict(search), "losses": own} for search, own in losses.items()]},
        ratios=ratios,
        json_file=given.json,
    )


if __name__ == "__main__":
    main()
