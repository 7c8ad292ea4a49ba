"""A trial that is paused between two measurements trains on as if it had not been."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.trainers.broken_workloads import Sound
from tests.support.trainers.trials import assert_same_bits, final_state, small_trial, without_clock
from trainers.config import Measurement, TargetConfig, TrialConfig
from trainers.loop import train
from trainers.ranks.context import RankContext, single_process_context


class Drawing(Sound):
    """Draws random numbers in training, and in evaluations, too."""

    def loss(self, model: nn.Module, batch: Any) -> Any:
        inputs, targets = batch
        return super().loss(model, (inputs + 0.1 * torch.randn(inputs.shape), targets))

    def evaluate(self, model: nn.Module, *, rank: int, world_size: int, device: str) -> Any:
        torch.rand(7)
        return super().evaluate(model, rank=rank, world_size=world_size, device=device)


DRAWING = {"workload": f"{__name__}:Drawing", "workload_options": {}}
EVERY_10 = {"evaluate_every": 10}
BY_EPOCHS = {"evaluate_every": None, "evaluate_every_epochs": 1.3}


def trained_with_pauses(config: TrialConfig, directory: Path, pause_steps: list[int]) -> list[Measurement]:
    """All that is heard of a trial that is left at these steps and goes on from its checkpoints."""
    heard: list[Measurement] = []
    for pause_step in [*pause_steps, None]:
        trial = train(config, RankContext(0, 1, "cpu", directory, pause_step=pause_step))
        for measurement in trial:
            if heard and measurement.step == heard[-1].step:
                assert measurement == heard[-1]  # the checkpoint's, given again
                continue
            heard.append(measurement)
            if measurement.step == pause_step:
                break
        trial.close()
        torch.manual_seed(999)
    return heard


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [EVERY_10, BY_EPOCHS, {**EVERY_10, **DRAWING}, {**EVERY_10, "checkpoint_every": 20}]
)
def test_a_pause_between_measurements_leaves_no_trace(options: dict[str, Any], tmp_path: Path) -> None:
    config = small_trial("shampoo", summaries=("mean_of_last_validation_loss", "best_validation_loss"), **options)
    whole = list(train(config, single_process_context(checkpoint_directory=tmp_path / "whole")))
    regular = [measured.step for measured in whole]
    for pause_steps, before_first in (([5], [2, 3]), ([11, 17, 20], [4, 7])):
        directory = tmp_path / f"paused at {pause_steps}"
        heard = trained_with_pauses(config, directory, pause_steps)
        assert [measured.step for measured in heard] == sorted({*regular, *pause_steps, *before_first})
        assert without_clock([measured for measured in heard if measured.step in regular]) == without_clock(whole)
        assert_same_bits(final_state(directory, config), final_state(tmp_path / "whole", config))
        # Shampoo's diagnostics come with its first preconditioners, at step 5.
        assert all(measured.metrics.keys() == whole[0].metrics.keys() for measured in heard if measured.step >= 5)


def test_a_target_is_reached_where_it_would_have_been(tmp_path: Path) -> None:
    by_step = [m.metrics["validation_loss"] for m in train(small_trial(evaluate_every=1), single_process_context())]
    config = small_trial(target=TargetConfig("validation_loss", by_step[14]))
    heard = {measured.step: measured for measured in trained_with_pauses(config, tmp_path, [17])}
    assert heard[17].metrics["steps_to_target"] == 17
    assert heard[20].metrics["steps_to_target"] == heard[40].metrics["steps_to_target"] == 20


def test_measurements_by_the_clock_go_on_counting_over_a_pause(tmp_path: Path) -> None:
    config = small_trial(evaluate_every=None, evaluate_every_seconds=1e6)
    heard = trained_with_pauses(config, tmp_path, [13])
    assert [measured.step for measured in heard] == [4, 9, 13, 40]
    [unpaused] = train(config, single_process_context())
    assert heard[-1].metrics["train_loss"] == unpaused.metrics["train_loss"]
    assert heard[-1].metrics["step_seconds"] == pytest.approx(heard[-1].seconds / 40)


@pytest.mark.parametrize(
    ("pause_step", "extra"), [(0, set()), (1, {1}), (2, {1, 2}), (10, {3, 7}), (25, {25}), (30, set()), (50, set())]
)
def test_up_to_a_pause_there_are_three_measurements(pause_step: int, extra: set[int], tmp_path: Path) -> None:
    context = RankContext(0, 1, "cpu", tmp_path, pause_step=pause_step)
    assert [measured.step for measured in train(small_trial(), context)] == sorted({10, 20, 30, 40} | extra)
