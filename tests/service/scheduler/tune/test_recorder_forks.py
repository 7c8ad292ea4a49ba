"""How forks are ordered: their checkpoints, their rows, and what becomes of those that cannot begin."""

from __future__ import annotations

import errno
import os
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest

from service.domain import FailureReason, TrialState
from service.scheduler.tune.messages import TrialOrder
from service.scheduler.tune.run_end import Ending, RunEnded
from service.specification.job import JobSpecification
from service.store.session import Database
from tests.support.service.searching.tune_calls import SPECIFICATION, Tune, measured
from trainers.loop import train
from trainers.ranks.context import single_process_context
from trainers.storage import full_disks

POPULATION = JobSpecification.model_validate(
    {
        **SPECIFICATION.model_dump(),
        "budget": {"num_trials": 4},
        "pruner": {"name": "pbt", "population": 2, "interval": 10},
    }
)


@pytest.fixture
def tune(sqlite_database: Database, tmp_path: Path) -> Tune:
    """A population of two, both measured at step 10; the first is the better one, and has a checkpoint there."""
    tune = Tune(sqlite_database, tmp_path, specification=POPULATION)
    for loss in (0.1, 0.9):
        trial = tune.begin()
        order = TrialOrder.from_tune(trial.config)
        assert (order.until_step, order.begins_at_step) == (10, 0)
        if order.number == 0:
            context = single_process_context(checkpoint_directory=Path(order.checkpoint_directory))
            with closing(train(order.config, context)) as training:
                list(islice(training, 1))
        assert tune.give(trial, measured(10, metrics={"validation_loss": loss})) == "STOP"
    return tune


def test_a_fork_is_ordered_with_its_parents_checkpoint(tune: Tune, tmp_path: Path) -> None:
    assert TrialOrder.from_tune(tune.begin().config).number == 0
    order = TrialOrder.from_tune(tune.begin().config)
    assert (order.number, order.begins_at_step, order.until_step) == (2, 10, 20)
    assert [path.name for path in (tmp_path / "2").iterdir()] == ["step-00000010"]
    _, dropped, fork = tune.stored()
    assert dropped.state is TrialState.PRUNED
    assert dropped.detail == (
        "among the worst 1 of 2 in its population at step 10: a fork of a better one takes its place"
    )
    assert (fork.forked_from, fork.forked_at_step, fork.step, fork.value) == (0, 10, 10, 0.1)
    assert fork.parameters["lr"] != tune.stored()[0].parameters["lr"]


def test_a_fork_whose_parents_checkpoint_is_gone_is_lost_and_the_others_go_on(tune: Tune, tmp_path: Path) -> None:
    (tmp_path / "0" / "step-00000010" / "manifest.json").unlink()
    assert TrialOrder.from_tune(tune.begin().config).number == 0
    assert tune.searcher.suggest("tune-2") is None
    states = [(trial.state, trial.reason) for trial in tune.stored()]
    assert states == [
        (TrialState.RUNNING, None),
        (TrialState.PRUNED, None),
        (TrialState.FAILED, FailureReason.LOST),
    ]
    assert "cannot begin where trial 0 was at step 10: there is no whole checkpoint" in (tune.stored()[2].detail or "")


def test_a_fork_that_finds_no_room_for_its_checkpoint_is_not_begun_and_ends_the_run(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert TrialOrder.from_tune(tune.begin().config).number == 0

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(full_disks, "FULL_DISK_SECONDS", 0.0)
    tune.signals.has_room = False
    with pytest.raises(RunEnded) as ended:
        tune.begin()
    assert ended.value.ending is Ending.NO_ROOM
    assert len(tune.stored()) == 2
