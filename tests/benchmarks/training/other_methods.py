"""Methods that are no members of the family, as other packages have them, beside AdamW and ours: losses after training.

    pip install -e '.[bench]'    # the other packages
    python -m tests.benchmarks.training.other_methods --log runs.jsonl    # goes on from the log
    python -m tests.benchmarks.training.other_methods --workloads digits-autoencoder --methods heavyball.PSGDKron soap
    python -m tests.benchmarks.training.other_methods --quick             # to see that it works: no figures to quote

Every method is tuned alike, with as many learning rates, each 1.6 times the one before, a cosine schedule after 5% of
warm-up and a weight decay of 0.01. All else is as its package has it by default, or where that is for longer trainings
as the length asks for: `starting_values` of ours, period and average of SPlus, which is measured at the average of its
weights, as by its authors. The learning rate with the least validation loss on seed 0 is trained again on three other
seeds, of which all figures are. Of a convolution's kernel ours see a matrix; Kron gives a factor to each of its four
sides, and SPlus none.

    steps_over_adamw.M.W   steps at which runs of method M on workload W first measure AdamW's best loss (median over
                           seeds of both) over AdamW's own steps; one measurement after the end, and in `censored`,
                           where it is not reached
    loss_over_adamw.M.W    M's best validation loss over AdamW's (medians over seeds)
    state_over_weights.M.W bytes of M's state over those of the weights

Learning rates at an end of a method's grid are in `at_an_end`: there another might be better. `optimizer_step` and
`step_counts` have the time and the operations of their steps (`--peers`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.utils._pytree import tree_iter

from shampoo import Shampoo, starting_values
from shampoo.hyperparameters import Preconditioner
from tests.benchmarks.report import Cell, report
from tests.benchmarks.steps.counts import allocated_bytes
from trainers.checkpoints.random_state import seed_random
from trainers.config import ScheduleConfig
from trainers.schedule import set_learning_rates
from trainers.workload.batches import train_batches
from trainers.workloads.registry import describe, load

OBJECTIVE = "validation_loss"
WEIGHT_DECAY = 0.01
SCHEDULE = ScheduleConfig(decay="cosine", warmup_fraction=0.05)
WORKLOADS = ("digits-autoencoder", "digits-convnet", "stdlib-gpt")
NUM_LEARNING_RATES = 9
RATIO = 1.6
TUNING_SEED = 0
SEEDS = (1, 2, 3)
NUM_EVALUATIONS = 50
SPLUS_PERIOD = 10
SPLUS_AVERAGES = 20
"""SPlus averages its weights over about a training's length divided by this. By default it refreshes every 100 steps
and averages over 1,000, which is for trainings longer than these."""


@dataclass(frozen=True, slots=True)
class Method:
    """How a method is built, and where its grid begins."""

    build: Callable[[list[Parameter], float, int], Optimizer]
    """Makes the optimizer of parameters, learning rate and number of steps."""
    least_lr: float
    has_average: bool = False
    """Whether it is evaluated between its `eval()` and `train()`."""


def _adamw(params: list[Parameter], lr: float, _num_steps: int) -> Optimizer:
    return torch.optim.AdamW(params, lr=lr, betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY)


def _ours(member: Preconditioner) -> Callable[[list[Parameter], float, int], Optimizer]:
    def build(params: list[Parameter], lr: float, num_steps: int) -> Optimizer:
        begun = starting_values(num_steps, preconditioner=member)
        return Shampoo(params, **{**begun, "lr": lr}, weight_decay=WEIGHT_DECAY)

    return build


def _heavyball_kron(params: list[Parameter], lr: float, _num_steps: int) -> Optimizer:
    import heavyball

    heavyball.utils.compile_mode = None  # minutes of compilation, and no faster steps on a CPU
    return cast("Optimizer", heavyball.PSGDKron(params, lr=lr, weight_decay=WEIGHT_DECAY))


def _pytorch_kron(params: list[Parameter], lr: float, _num_steps: int) -> Optimizer:
    from pytorch_optimizer import Kron

    return Kron(params, lr=lr, weight_decay=WEIGHT_DECAY)


def _pytorch_splus(params: list[Parameter], lr: float, num_steps: int) -> Optimizer:
    from pytorch_optimizer import SPlus

    ema_rate = max(0.0, 1 - SPLUS_AVERAGES / num_steps)
    return SPlus(params, lr=lr, weight_decay=WEIGHT_DECAY, inverse_steps=SPLUS_PERIOD, ema_rate=ema_rate)


METHODS: Mapping[str, Method] = {
    "adamw": Method(_adamw, 1e-3),
    "shampoo": Method(_ours("shampoo"), 1e-3),
    "soap": Method(_ours("soap"), 1e-3),
    "kl": Method(_ours("kl"), 1e-3),
    "spectral": Method(_ours("spectral"), 1e-3),
    "heavyball.PSGDKron": Method(_heavyball_kron, 1e-3),
    "pytorch_optimizer.Kron": Method(_pytorch_kron, 1e-3),
    # Its step of an m×n matrix has root mean square 2·lr/(m + n).
    "pytorch_optimizer.SPlus": Method(_pytorch_splus, 0.1, has_average=True),
}


@dataclass(frozen=True, slots=True)
class Run:
    """One training."""

    workload: str
    method: str
    lr: float
    seed: int
    num_steps: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a training."""

    losses: list[float]
    """Losses on the validation data, every `interval` steps; empty if it diverged."""
    state_over_weights: float

    @property
    def best(self) -> float:
        return min(self.losses, default=math.inf)

    def steps_to(self, goal: float, *, every: int) -> float:
        """Steps up to the first measurement of at most `goal`; infinite if there is none."""
        return next((every * number for number, loss in enumerate(self.losses, 1) if loss <= goal), math.inf)


def interval(num_steps: int) -> int:
    """Steps from one measurement to the next."""
    return max(1, num_steps // NUM_EVALUATIONS)


def train(run: Run) -> Outcome:
    """Trains in this process; measured every `interval` steps."""
    method, description = METHODS[run.method], describe(run.workload)
    workload = load(run.workload, {"size": "tiny"} if "size" in description.options else {})
    seed_random(run.seed)
    model = workload.build_model()
    params = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = method.build(params, run.lr, run.num_steps)
    batches = train_batches(
        workload, batch_size=description.default_batch_size, seed=run.seed, rank=0, world_size=1, start_step=0
    )
    losses: list[float] = []
    for step in range(run.num_steps):
        set_learning_rates(optimizer, SCHEDULE, step=step, num_steps=run.num_steps)
        optimizer.zero_grad(set_to_none=True)
        workload.loss(model, next(batches)).backward()
        optimizer.step()
        if (step + 1) % interval(run.num_steps) == 0:
            averaged = optimizer if method.has_average else None
            if averaged is not None:
                averaged.eval()  # type: ignore[attr-defined]  # of optimizers that average
            with torch.no_grad():
                model.eval()
                total, weight = workload.evaluate(model, rank=0, world_size=1, device="cpu")[OBJECTIVE]
                model.train()
            if averaged is not None:
                averaged.train()  # type: ignore[attr-defined]  # of optimizers that average
            if not math.isfinite(total):
                losses.clear()
                break
            losses.append(total / weight)
    state = [x for of_one in optimizer.state.values() for x in tree_iter(of_one) if isinstance(x, Tensor)]
    return Outcome(losses, allocated_bytes(state) / allocated_bytes(params))


def learning_rates(method: str, number: int) -> list[float]:
    """A method's grid, in the order of its values."""
    return [METHODS[method].least_lr * RATIO**k for k in range(number)]


class Trainings:
    """Runs in processes of one thread each; those that the log has are not trained again."""

    def __init__(self, pool: Executor, log: Path | None) -> None:
        self._pool = pool
        self._log = log
        self._known: dict[Run, Outcome] = {}
        if log is not None and log.exists():
            for line in map(json.loads, log.read_text().splitlines()):
                self._known[Run(**line["run"])] = Outcome(**line["outcome"])

    def outcomes(self, runs: Sequence[Run]) -> dict[Run, Outcome]:
        """The outcome of each run, by the run."""
        started = {self._pool.submit(train, run): run for run in runs if run not in self._known}
        for future in as_completed(started):
            run, outcome = started[future], future.result()
            self._known[run] = outcome
            print(f"{run.workload} {run.method} {run.lr:.4g} seed {run.seed}: {outcome.best:.4f}", file=sys.stderr)
            if self._log is not None:
                with self._log.open("a") as file:
                    file.write(json.dumps({"run": asdict(run), "outcome": asdict(outcome)}) + "\n")
        return {run: self._known[run] for run in runs}


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one method on one workload."""

    lr: float
    is_at_an_end: bool
    """True: the best learning rate is an end of the grid."""
    outcomes: list[Outcome]
    """One for each seed."""

    @property
    def best(self) -> float:
        return statistics.median(outcome.best for outcome in self.outcomes)

    def steps_to(self, goal: float, *, every: int) -> float:
        return statistics.median(outcome.steps_to(goal, every=every) for outcome in self.outcomes)


def compared(
    trainings: Trainings, methods: Sequence[str], lengths: Mapping[str, int], *, num_rates: int, seeds: Sequence[int]
) -> dict[tuple[str, str], Result]:
    """Tunes and confirms every method on every workload, by workload and method."""
    pairs = list(itertools.product(lengths, methods))
    tried = {
        (workload, method): [
            Run(workload, method, lr, TUNING_SEED, lengths[workload]) for lr in learning_rates(method, num_rates)
        ]
        for workload, method in pairs
    }
    tuned = trainings.outcomes([run for runs in tried.values() for run in runs])
    best = {pair: min(runs, key=lambda run: tuned[run].best) for pair, runs in tried.items()}
    confirming = {(w, m): [Run(w, m, run.lr, seed, run.num_steps) for seed in seeds] for (w, m), run in best.items()}
    confirmed = trainings.outcomes([run for runs in confirming.values() for run in runs])
    return {
        pair: Result(
            best[pair].lr, best[pair] in (tried[pair][0], tried[pair][-1]), [confirmed[run] for run in confirming[pair]]
        )
        for pair in pairs
    }


def main() -> None:
    """Trains what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS)[1:], default=list(METHODS)[1:], help="and adamw")
    parser.add_argument(
        "--learning-rates", type=int, default=NUM_LEARNING_RATES, help="learning rates of each (default: 9)"
    )
    parser.add_argument("--processes", type=int, default=2, help="runs at once, of one thread each (default: 2)")
    parser.add_argument("--log", type=Path, help="a line of JSON for each run, as soon as it is there")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    parser.add_argument("--quick", action="store_true", help="2 learning rates and 1 seed of 20 steps")
    options = parser.parse_args()
    lengths = {name: 20 if options.quick else describe(name).default_num_steps for name in options.workloads}
    num_rates, seeds = (2, SEEDS[:1]) if options.quick else (options.learning_rates, SEEDS)
    if min(num_rates, options.processes) < 1:
        parser.error("--learning-rates and --processes must be at least 1")
    # Inherited by the processes. Set before they import torch, or its threads exist already.
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(
        options.processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=torch.set_num_threads,
        initargs=(1,),
    ) as pool:
        results = compared(
            Trainings(pool, options.log), ["adamw", *options.methods], lengths, num_rates=num_rates, seeds=seeds
        )
    rows: list[list[Cell]] = []
    ratios: dict[str, float] = {}
    censored: list[str] = []
    for (workload, method), result in results.items():
        every, adamw = interval(lengths[workload]), results[workload, "adamw"]
        steps = result.steps_to(adamw.best, every=every)
        state = result.outcomes[0].state_over_weights
        reached: Cell = "never" if math.isinf(steps) else steps
        rows.append([workload, method, f"{result.lr:.4g}", f"{result.best:.4f}", reached, state])
        ratios[f"state_over_weights.{method}.{workload}"] = state
        if method != "adamw":
            claim = f"steps_over_adamw.{method}.{workload}"
            if math.isinf(steps):
                censored.append(claim)
            ratios[claim] = min(steps, lengths[workload] + every) / adamw.steps_to(adamw.best, every=every)
            if math.isfinite(result.best):
                ratios[f"loss_over_adamw.{method}.{workload}"] = result.best / adamw.best
    report(
        "other_methods",
        columns=["workload", "method", "lr", "best loss", "steps to goal", "state/weights"],
        rows=rows,
        figures={
            "censored": censored,
            "at_an_end": [f"{method}.{workload}" for (workload, method), one in results.items() if one.is_at_an_end],
            "best_losses": {
                f"{method}.{workload}": [o.best if math.isfinite(o.best) else None for o in one.outcomes]
                for (workload, method), one in results.items()
            },
            "num_learning_rates": num_rates,
            "num_steps": lengths,
            "seeds": list(seeds),
        },
        ratios=ratios,
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
