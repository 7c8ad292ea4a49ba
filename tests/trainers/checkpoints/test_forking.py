"""Trials that begin from another one's checkpoint."""

from __future__ import annotations

import dataclasses
import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.support.trainers.trials import OPTIMIZERS, small_trial, without_clock
from trainers.checkpoints import CheckpointMismatch, CheckpointMissing, fork_checkpoint
from trainers.config import AveragingConfig, Measurement, OptimizerConfig, ScheduleConfig, TrialConfig
from trainers.loop import train
from trainers.ranks.context import RankContext, single_process_context

STEP = 20
DROPOUT = {"hidden_sizes": [32, 16], "dropout": 0.2}


def trained(
    config: TrialConfig, directory: Path, *, begins_at_step: int = 0, limit: int | None = None
) -> list[Measurement]:
    """Measurements of a trial, which is dropped after `limit` of them."""
    context = dataclasses.replace(single_process_context(checkpoint_directory=directory), begins_at_step=begins_at_step)
    trial = train(config, context)
    found = list(islice(trial, limit))
    trial.close()
    return found


def changed(config: TrialConfig, **arguments: float) -> TrialConfig:
    optimizer = OptimizerConfig(config.optimizer.name, {**config.optimizer.arguments, **arguments})
    return dataclasses.replace(config, optimizer=optimizer)


def forked(config: TrialConfig, parent: TrialConfig, tmp_path: Path) -> list[Measurement]:
    """The measurements of a fork of a trial that is half done."""
    trained(parent, tmp_path / "parent", limit=2)
    fork_checkpoint(tmp_path / "parent", tmp_path / "fork", step=STEP, config=config)
    shutil.rmtree(tmp_path / "parent")  # a parent may end before its fork begins
    return trained(config, tmp_path / "fork", begins_at_step=STEP)


@pytest.mark.parametrize("averaging", [None, AveragingConfig("ema", {"decay": 0.9})])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_fork_with_its_parents_hyperparameters_goes_on_bit_for_bit(
    tmp_path: Path, optimizer: str, averaging: AveragingConfig | None
) -> None:
    config = small_trial(optimizer, workload_options=DROPOUT, averaging=averaging)
    whole = trained(config, tmp_path / "whole")
    assert without_clock(forked(config, config, tmp_path)) == without_clock(whole[1:])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_fork_takes_the_steps_of_its_own_learning_rate_from_its_parents_weights(
    tmp_path: Path, optimizer: str
) -> None:
    # Steps of length 0 are the plainest sign: from then on the weights are those of the parent.
    parent = small_trial(optimizer, schedule=ScheduleConfig(decay="constant"))
    begun, *rest = forked(changed(parent, lr=0.0, weight_decay=0.0), parent, tmp_path)
    assert begun.step == STEP
    assert [measured.step for measured in rest] == [30, 40]
    assert all(m.metrics["validation_loss"] == begun.metrics["validation_loss"] for m in rest)


def test_a_fork_goes_on_as_if_its_hyperparameters_had_changed_in_flight(tmp_path: Path) -> None:
    # SGD without momentum has no state but the weights: half of the learning rate is half of the schedule's factor.
    sgd = OptimizerConfig("sgd", {"lr": 0.1})
    parent = small_trial(sgd, schedule=ScheduleConfig(decay="constant", warmup_fraction=0.0))
    child = changed(parent, lr=0.05)
    of_fork = forked(child, parent, tmp_path)
    other = trained(parent, tmp_path / "other", limit=2)
    assert without_clock(of_fork[:1]) == without_clock(other[1:])
    whole = trained(parent, tmp_path / "whole")
    assert of_fork[1].metrics["train_loss"] != whole[2].metrics["train_loss"]


@pytest.mark.slow
def test_a_fork_is_resumed_with_its_own_hyperparameters(tmp_path: Path) -> None:
    parent = small_trial("shampoo", workload_options=DROPOUT)
    child = changed(parent, lr=1e-3, precondition_frequency=3)
    whole = forked(child, parent, tmp_path / "whole")
    trained(parent, tmp_path / "parent", limit=2)
    fork_checkpoint(tmp_path / "parent", tmp_path / "fork", step=STEP, config=child)
    trained(child, tmp_path / "fork", begins_at_step=STEP, limit=2)
    again = trained(child, tmp_path / "fork", begins_at_step=STEP)
    assert without_clock(again) == without_clock(whole[1:])


def test_a_fork_of_a_step_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    config = small_trial()
    trained(config, tmp_path / "parent", limit=2)
    with pytest.raises(CheckpointMissing, match="step-00000015"):
        fork_checkpoint(tmp_path / "parent", tmp_path / "fork", step=15, config=config)
    (tmp_path / "parent" / "step-00000020" / "manifest.json").write_bytes(b"{}")
    with pytest.raises(CheckpointMissing, match="checksum"):
        fork_checkpoint(tmp_path / "parent", tmp_path / "fork", step=STEP, config=config)
    assert not (tmp_path / "fork").exists()


@pytest.mark.parametrize("field", [{"batch_size": 96}, {"workload_options": DROPOUT}, {"seed": 1}])
def test_a_fork_that_would_need_another_model_or_other_data_is_refused(tmp_path: Path, field: dict[str, Any]) -> None:
    config = small_trial()
    trained(config, tmp_path / "parent", limit=2)
    [name] = field
    with pytest.raises(CheckpointMismatch, match=f"may not change in training: {name}"):
        fork_checkpoint(tmp_path / "parent", tmp_path / "fork", step=STEP, config=small_trial(**field))


def test_a_fork_of_another_optimizer_is_refused(tmp_path: Path) -> None:
    trained(small_trial("adamw"), tmp_path / "parent", limit=2)
    with pytest.raises(CheckpointMismatch, match="optimizer 'adamw' there, 'sgd' here"):
        fork_checkpoint(tmp_path / "parent", tmp_path / "fork", step=STEP, config=small_trial("sgd"))


def test_a_fork_whose_hyperparameters_shape_the_state_is_refused_before_it_trains(tmp_path: Path) -> None:
    parent = small_trial("shampoo")
    child = changed(parent, max_preconditioner_dim=8)
    with pytest.raises(CheckpointMismatch, match=r"factor.* there, .* here"):
        forked(child, parent, tmp_path)


def test_a_fork_does_not_begin_without_its_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointMissing, match="of step 20, and there is none"):
        trained(small_trial(), tmp_path / "empty", begins_at_step=STEP)


def test_what_a_crash_left_in_a_forks_directory_is_replaced(tmp_path: Path) -> None:
    config = small_trial()
    trained(config, tmp_path / "parent", limit=3)
    trained(config, tmp_path / "fork", limit=3)
    fork_checkpoint(tmp_path / "parent", tmp_path / "fork", step=STEP, config=config)
    assert [path.name for path in (tmp_path / "fork").iterdir()] == ["step-00000020"]


def test_the_checkpoint_of_a_pause_is_on_disk_when_it_is_measured(tmp_path: Path) -> None:
    context = RankContext(0, 1, "cpu", tmp_path, pause_step=STEP)
    for measurement in train(small_trial(), context):
        if measurement.step >= STEP:
            assert (tmp_path / f"step-{measurement.step:08d}" / "manifest.json").exists()
