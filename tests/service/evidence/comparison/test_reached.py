"""How soon a trial was as good as the baseline's in the end."""

from __future__ import annotations

import pytest

from service.domain import Direction, Phase, TrialState
from service.evidence.comparison.reached import reached_baseline
from service.evidence.finished_trial import FinishedTrial
from trainers.config import OptimizerConfig, TrialConfig
from trainers.stored_config import StoredConfig


def trial(values: dict[int, float], *, batch_size: int = 32) -> FinishedTrial:
    """A trial with these losses by step, which took a second for each step."""
    curve = [(step, float(step), {"loss": value}) for step, value in values.items()]
    config = TrialConfig(
        workload="digits-mlp",
        optimizer=OptimizerConfig("shampoo"),
        num_steps=max(values),
        evaluate_every=1,
        batch_size=batch_size,
    )
    stored = StoredConfig.of(config.to_json())
    return FinishedTrial(0, Phase.SEARCH, TrialState.COMPLETED, None, stored, curve[-1][2]["loss"], curve)


@pytest.mark.parametrize(
    ("ours", "step"),
    [
        ({20: 0.9, 40: 0.5, 60: 0.3}, 40),
        ({20: 0.9, 30: 0.4, 40: 0.4, 60: 0.3}, 40),  # measured at 30 because it was paused there
        ({7: 0.9, 19: 0.6, 33: 0.4, 60: 0.3}, 33),  # measured by the clock
    ],
)
def test_a_pause_that_only_one_was_measured_at_counts_for_neither(ours: dict[int, float], step: int) -> None:
    baseline = trial({20: 0.8, 40: 0.6, 60: 0.5})
    reached = reached_baseline([(trial(ours), baseline)], "loss", Direction.MINIMIZE)
    assert reached is not None
    assert (reached.step, reached.baseline_step) == (step, 60)


def test_trials_with_other_batches_are_compared_after_equally_many_examples() -> None:
    ours = trial({20: 0.9, 30: 0.4, 40: 0.4, 60: 0.3}, batch_size=64)
    reached = reached_baseline([(ours, trial({40: 0.8, 80: 0.6, 120: 0.5}))], "loss", Direction.MINIMIZE)
    assert reached is not None
    assert (reached.step, reached.baseline_step, reached.step_ratio, reached.examples_ratio) == pytest.approx(
        (40, 120, 3, 1.5)
    )
