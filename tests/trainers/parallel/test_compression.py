"""PowerSGD between real gloo ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.trainers.parallel.models import build
from tests.support.trainers.parallel.training import (
    elements_of_a_compressed_step,
    first_gradients,
    train_in_two_halves,
    train_model,
    trial_config,
)
from tests.support.trainers.ranks import WarmRanks
from tests.support.trainers.trials import assert_same_bits
from trainers.config import CompressionConfig, TrialConfig


def compressed(rank: int, *, error_feedback: bool = True, **fields: Any) -> TrialConfig:
    return trial_config(
        compression=CompressionConfig(rank=rank, start_step=3, error_feedback=error_feedback),
        **{"num_steps": 8, **fields},
    )


@pytest.mark.parametrize("rank", [1, 2])
def test_a_step_sends_as_many_elements_as_the_factors_have(two_ranks: WarmRanks, rank: int) -> None:
    expected = num_whole = 0
    for parameter in build("mlp").parameters():
        whole = parameter.numel()
        matrix = rank * (parameter.shape[0] + whole // parameter.shape[0])
        expected += matrix if parameter.ndim > 1 and matrix < whole else whole
        num_whole += whole
    for counted, told in two_ranks.run(elements_of_a_compressed_step, "mlp", compressed(rank)):
        assert counted == expected
        assert told == (expected, num_whole)
    assert expected < num_whole / 2 or rank > 1


@pytest.mark.parametrize("rank", [16, 5])
def test_gradients_of_no_higher_rank_are_exact(two_ranks: WarmRanks, three_ranks: WarmRanks, rank: int) -> None:
    # 16 is the full rank of the largest matrix. The second model's batches make gradients of rank 5, of 24 x 24.
    model = "mlp" if rank == 16 else "low_rank"
    for ranks in (two_ranks, three_ranks):
        for found, expected in ranks.run(first_gradients, model, compressed(rank)):
            for name, gradient in expected.items():
                torch.testing.assert_close(found[name], gradient, rtol=0, atol=1e-5)


def test_ranks_stay_equal_and_learn(two_ranks: WarmRanks) -> None:
    exact = two_ranks.run(train_model, "mlp", trial_config(num_steps=20), None, "sgd")
    first, second = two_ranks.run(train_model, "mlp", compressed(2, num_steps=20), None, "sgd")
    assert_same_bits(first.parameters, second.parameters)
    # Exact until compression starts, the same path roughly from then on.
    assert_same_bits(first.parameters[2], exact[0].parameters[2])
    assert not torch.equal(first.parameters[3]["0.weight"], exact[0].parameters[3]["0.weight"])
    assert first.validation[-1] == pytest.approx(exact[0].validation[-1], rel=0.1)


def test_accumulation_counts_as_one_step(two_ranks: WarmRanks) -> None:
    exact = two_ranks.run(train_model, "mlp", trial_config(num_steps=4, accumulation_steps=2))[0]
    found = two_ranks.run(train_model, "mlp", compressed(1, num_steps=4, accumulation_steps=2))[0]
    assert_same_bits(found.parameters[:3], exact.parameters[:3])
    assert not torch.equal(found.parameters[3]["0.weight"], exact.parameters[3]["0.weight"])


@pytest.mark.parametrize("error_feedback", [True, False])
@pytest.mark.parametrize("num_steps", [4, 8])
def test_resumed_training_is_bit_identical(
    two_ranks: WarmRanks, three_ranks: WarmRanks, num_steps: int, error_feedback: bool
) -> None:
    # Interrupted after step 2, before compression, and after step 4.
    config = compressed(2, error_feedback=error_feedback, num_steps=num_steps)
    for ranks in (two_ranks, three_ranks):
        for whole_run, resumed in ranks.run(train_in_two_halves, "gpt", config):
            assert_same_bits(whole_run.parameters[num_steps // 2 :], resumed.parameters)
