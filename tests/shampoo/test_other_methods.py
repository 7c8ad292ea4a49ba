"""Methods of other packages have the state, and take the products, that `shampoo/METHODS.md` says of them."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.benchmarks.steps.counts import allocated_bytes
from tests.benchmarks.steps.peers import build_peer
from tests.benchmarks.steps.step_counts import count, state_tensors
from tests.benchmarks.training.other_methods import METHODS, Outcome, Run, Trainings, interval, train

SIDE = 96
"""Of the square matrix that is counted: of others, products of two sides can be taken in a cheaper order."""


@dataclass(frozen=True, slots=True)
class Row:
    """Of the table, for a matrix of d×d: in units of d² and d³."""

    state: float
    ordinary: float
    refresh: float
    """Products alone: neither triangular solves nor decompositions are counted."""


ROWS = {
    "pytorch_optimizer.Kron": Row(state=3, ordinary=8, refresh=8 + 12 + 4),
    # Half of each factor is stored.
    "heavyball.PSGDKron": Row(state=2, ordinary=8, refresh=8 + 12 + 4),
    "pytorch_optimizer.SPlus": Row(state=6, ordinary=12, refresh=12),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_a_package_keeps_and_multiplies_what_the_table_says(name: str) -> None:
    contestant = build_peer(name, [(SIDE, SIDE)], block=SIDE, device="cpu", compiled=False)
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = count(contestant, [(SIDE, SIDE)], device="cpu")
    finally:
        torch.set_num_threads(num_threads)
    row = ROWS[name]
    # Diagonals, norms and products with vectors are of lower order: about 1/96 and a few of those.
    numbers = allocated_bytes(state_tensors(contestant)) / 4
    assert numbers == pytest.approx(row.state * SIDE**2, rel=0.02)
    for kind, expected in (("ordinary", row.ordinary), ("refresh", row.refresh)):
        assert found[kind].floating_point_operations == pytest.approx(expected * SIDE**3, rel=0.05)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Learning rate changed between steps")  # as a schedule does; heavyball takes it
@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_the_same_way_twice(method: str) -> None:
    run = Run("digits-autoencoder", method, METHODS[method].least_lr * 4, seed=1, num_steps=12)
    outcome = train(run)
    assert len(outcome.losses) == run.num_steps // interval(run.num_steps)
    assert outcome.losses[-1] < outcome.losses[0]
    assert train(run) == outcome


def test_a_run_of_the_log_is_not_trained_again(tmp_path: Path) -> None:
    log = tmp_path / "runs.jsonl"
    log.write_text(
        '{"run": {"workload": "digits-convnet", "method": "soap", "lr": 0.5, "seed": 2, "num_steps": 9}, '
        '"outcome": {"losses": [], "state_over_weights": 3.0}}\n'
    )
    run = Run("digits-convnet", "soap", 0.5, seed=2, num_steps=9)
    with ThreadPoolExecutor(1) as pool:
        (outcome,) = Trainings(pool, log).outcomes([run]).values()
    assert outcome == Outcome([], 3.0)
    assert math.isinf(outcome.best)
