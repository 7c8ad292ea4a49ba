"""Pasted code on two ranks, its model in DDP: it trains what trials on two ranks measured."""

from __future__ import annotations

import pytest

from tests.support.trainers.pasting import metrics_of_ranks, shares_of_ranks, snippet_of
from tests.support.trainers.ranks import WarmRanks
from tests.support.trainers.trials import run_trial
from trainers.config import AveragingConfig, OptimizerConfig, ScheduleConfig, TrialConfig

OPTIMIZERS = (
    OptimizerConfig("adamw", {"lr": 3e-3, "betas": [0.8, 0.99], "weight_decay": 0.3}),
    OptimizerConfig("shampoo", {"lr": 3e-3, "weight_decay": 0.3, "precondition_frequency": 3}),
)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: optimizer.name)
def test_what_is_pasted_on_two_ranks_is_what_they_measured(optimizer: OptimizerConfig, two_ranks: WarmRanks) -> None:
    config = TrialConfig(
        workload="digits-mlp",
        workload_options={"dropout": 0.0},  # its units are drawn from the ranks' own seeds
        optimizer=optimizer,
        schedule=ScheduleConfig(warmup_fraction=0.2, decay="cosine"),
        averaging=AveragingConfig("ema", {"decay": 0.7}),
        gradient_clip_norm=0.5,
        num_steps=6,
        evaluate_every=6,
        batch_size=8,
        seed=3,
    )
    [measurement] = two_ranks.run(run_trial, config)[0]
    found = metrics_of_ranks(two_ranks.run(shares_of_ranks, snippet_of(config), config))
    # Of two ranks' gradients there is one sum, and half of it is exact.
    assert found == {name: measurement.metrics[name] for name in found}
    assert found
