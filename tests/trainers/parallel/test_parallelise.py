"""Models shared by ranks against the same model on one process, with real gloo ranks."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.support.trainers.parallel.models import build
from tests.support.trainers.parallel.training import (
    MODES,
    WORKLOAD,
    RankResult,
    average_weights,
    gathered_weights_kept,
    gradients_that_overflow_on_rank_0,
    late_gradient,
    modules_alive_after,
    optimizer_of,
    refused,
    train_alone,
    train_and_evaluate_with_buffers,
    train_in_two_halves,
    train_model,
    train_shares_alone,
    trial_config,
)
from tests.support.trainers.ranks import WarmRanks
from tests.support.trainers.trials import assert_same_bits
from trainers.config import CompressionConfig, InvalidConfig, ParallelismConfig
from trainers.parallel.parallelise import parallelise
from trainers.ranks.context import single_process_context

SHARDED = ("fsdp2", "hsdp", "simple_fsdp")


@pytest.fixture(scope="module")
def four_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmRanks]:
    ranks = WarmRanks(4, tmp_path_factory.mktemp("four_ranks") / "meeting_point")
    yield ranks
    assert ranks.stop() == [0] * 4


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor], *, atol: float) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=atol, msg=functools.partial("{}: {}".format, name))


def assert_equals_one_process(by_rank: list[RankResult], alone: RankResult) -> None:
    """Weights are of order 1, and rounding of the mean over ranks is the only difference: 1e-6 in the first step; AdamW
    and SGD with momentum enlarge it little, which 1e-5 allows for."""
    for rank, outcome in enumerate(by_rank):
        assert outcome.names == alone.names
        assert_same_bits(outcome.parameters[-1], by_rank[0].parameters[-1])
        assert_close(outcome.parameters[0], alone.parameters[0], atol=1e-6)
        assert_close(outcome.parameters[-1], alone.parameters[-1], atol=1e-5)
        assert outcome.norms == pytest.approx(alone.norms, rel=1e-6), rank
        assert outcome.validation == pytest.approx(alone.validation, abs=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_two_ranks_equal_one_process(two_ranks: WarmRanks, mode: str) -> None:
    # Clipped, so that the norm counts; on ranks in two parts.
    alone = train_alone("gpt", trial_config(gradient_clip_norm=0.5, num_steps=6))
    config = trial_config(mode, gradient_clip_norm=0.5, accumulation_steps=2, num_steps=6)
    outcomes = two_ranks.run(train_model, "gpt", config)
    assert_equals_one_process(outcomes, alone)
    if mode == "ddp":
        for found, expected in zip(outcomes[0].parameters, alone.parameters, strict=True):
            assert_close(found, expected, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_frozen_parameters_and_those_without_gradient_stay(two_ranks: WarmRanks, mode: str) -> None:
    alone = train_alone("partly_used", trial_config(num_steps=3), "sgd")
    outcomes = two_ranks.run(train_model, "partly_used", trial_config(mode, num_steps=3), None, "sgd")
    assert_equals_one_process(outcomes, alone)
    before = dict(build("partly_used").named_parameters())
    for name in ("frozen.weight", "unused.weight"):
        assert_same_bits(outcomes[0].parameters[-1][name], before[name].detach())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("recomputes", [False, True])
def test_blocks_that_are_called_twice_or_share_a_matrix(two_ranks: WarmRanks, mode: str, recomputes: bool) -> None:
    alone = train_alone("shared", trial_config(num_steps=3, gradient_clip_norm=0.5), "sgd")
    config = trial_config(mode, num_steps=3, gradient_clip_norm=0.5, activation_checkpointing=recomputes)
    assert_equals_one_process(two_ranks.run(train_model, "shared", config, None, "sgd"), alone)


@pytest.mark.parametrize("mode", ["ddp", "fsdp2", "simple_fsdp"])
def test_three_ranks_of_which_some_hold_nothing_equal_one_process(three_ranks: WarmRanks, mode: str) -> None:
    alone = train_alone("uneven", trial_config(num_steps=4, gradient_clip_norm=0.5))
    outcomes = three_ranks.run(train_model, "uneven", trial_config(mode, num_steps=4, gradient_clip_norm=0.5))
    assert_equals_one_process(outcomes, alone)


@pytest.mark.parametrize("model", ["mlp", "uneven"])
def test_four_ranks_sharded_in_pairs_equal_one_process(four_ranks: WarmRanks, model: str) -> None:
    alone = train_alone(model, trial_config(num_steps=4, gradient_clip_norm=0.5))
    outcomes = four_ranks.run(train_model, model, trial_config("hsdp", num_steps=4, gradient_clip_norm=0.5))
    assert_equals_one_process(outcomes, alone)


def test_a_scalar_parameter_is_replicated_by_simple_fsdp_and_refused_by_fsdp2(two_ranks: WarmRanks) -> None:
    alone = train_alone("scalar", trial_config(num_steps=3, gradient_clip_norm=0.5))
    config = trial_config("simple_fsdp", num_steps=3, gradient_clip_norm=0.5)
    assert_equals_one_process(two_ranks.run(train_model, "scalar", config), alone)
    for message in two_ranks.run(refused, "scalar", trial_config("fsdp2")):
        assert message.startswith("parallelism.mode: fsdp2 cannot shard parameters without dimensions (temperature)")


@pytest.mark.parametrize("mode", MODES)
def test_running_statistics_are_those_of_rank_0(two_ranks: WarmRanks, mode: str) -> None:
    config = trial_config(mode, num_steps=3)
    alone, expected_buffers = train_shares_alone("batch_norm", config, 2)
    for outcome, buffers in two_ranks.run(train_and_evaluate_with_buffers, "batch_norm", config):
        assert_close(outcome.parameters[-1], alone.parameters[-1], atol=1e-6)
        assert_close(buffers, expected_buffers, atol=1e-6)
        assert outcome.validation == pytest.approx(alone.validation, abs=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_recomputed_activations_change_no_bit(two_ranks: WarmRanks, mode: str) -> None:
    kept = two_ranks.run(train_model, "gpt_with_dropout", trial_config(mode, num_steps=2))
    config = trial_config(mode, num_steps=2, activation_checkpointing=True)
    for outcome, expected in zip(two_ranks.run(train_model, "gpt_with_dropout", config), kept, strict=True):
        assert outcome.losses == expected.losses
        assert outcome.names == expected.names
        assert_same_bits(outcome.parameters, expected.parameters)


@pytest.mark.parametrize("model", ["gpt", "batch_norm"])
@pytest.mark.parametrize("mode", SHARDED)
def test_sharded_models_train_in_bfloat16_as_replicas_do(two_ranks: WarmRanks, mode: str, model: str) -> None:
    replicas = two_ranks.run(train_model, model, trial_config(precision="bfloat16", num_steps=3), None, "sgd")
    sharded = two_ranks.run(train_model, model, trial_config(mode, precision="bfloat16", num_steps=3), None, "sgd")
    for outcome, expected in zip(sharded, replicas, strict=True):
        # Losses near 3 and a mantissa of 8 bits; normalisation weights are rounded when they are gathered.
        assert outcome.losses == pytest.approx(expected.losses, abs=0.03)


@pytest.mark.parametrize("mode", MODES)
def test_an_overflow_on_one_rank_skips_the_step_on_all(two_ranks: WarmRanks, mode: str) -> None:
    # The scale is halved.
    assert two_ranks.run(gradients_that_overflow_on_rank_0, mode) == [(2.0**9, False, 1)] * 2


@pytest.mark.parametrize("mode", MODES)
def test_resumed_training_is_bit_identical(two_ranks: WarmRanks, mode: str) -> None:
    for whole_run, resumed in two_ranks.run(train_in_two_halves, "partly_used", trial_config(mode, num_steps=4)):
        assert_same_bits(whole_run.parameters[2:], resumed.parameters)


def test_resumed_training_is_bit_identical_on_three_ranks(three_ranks: WarmRanks) -> None:
    # From three ranks on, gloo's order of summation depends on how gradients are laid out in buckets.
    for whole_run, resumed in three_ranks.run(train_in_two_halves, "gpt", trial_config(num_steps=6)):
        assert_same_bits(whole_run.parameters[3:], resumed.parameters)


@pytest.mark.parametrize(
    ("mode", "method"),
    [("fsdp2", "ema"), ("simple_fsdp", "lawa"), ("fsdp2", "schedule_free"), ("simple_fsdp", "primal")],
)
def test_averages_of_sharded_weights_equal_those_of_one_process(two_ranks: WarmRanks, mode: str, method: str) -> None:
    trained, averaged = average_weights("alone", method)
    for found_trained, found_averaged in two_ranks.run(average_weights, mode, method):
        assert_close(found_trained, trained, atol=1e-5)
        assert_close(found_averaged, averaged, atol=1e-5)


def test_simple_fsdp_drops_gathered_weights_between_the_passes(two_ranks: WarmRanks) -> None:
    for kept in two_ranks.run(gathered_weights_kept, "simple_fsdp"):
        assert kept
        assert not any(kept)


def test_a_parameter_that_gets_its_first_gradient_late_is_an_error_in_ddp(two_ranks: WarmRanks) -> None:
    for message in two_ranks.run(late_gradient):
        assert message.startswith("parameter unused.")
        assert "had no gradient in the first step and has one now" in message


def test_a_model_that_no_checkpoint_can_be_loaded_into_is_refused_by_name_before_it_trains(tmp_path: Path) -> None:
    with_checkpoints = single_process_context(checkpoint_directory=tmp_path)
    told = "workload: no checkpoint can be loaded into 0.mask, whose elements share memory, as in an expanded view"
    with pytest.raises(InvalidConfig, match=f"^{re.escape(told)}"):
        parallelise(build("expanded"), WORKLOAD, trial_config(), with_checkpoints)
    for name in ("expanded_once", "expanded_unsaved"):
        model = parallelise(build(name), WORKLOAD, trial_config(), with_checkpoints).model
        model.load_state_dict(model.state_dict())
    parallelise(nn.LazyLinear(3), WORKLOAD, trial_config(), with_checkpoints)
    parallelise(build("expanded"), WORKLOAD, trial_config(), single_process_context())


def test_impossible_configs_are_refused_by_name(two_ranks: WarmRanks, three_ranks: WarmRanks) -> None:
    def message(ranks: WarmRanks, model: str, mode: str = "ddp", **fields: object) -> str:
        messages = ranks.run(refused, model, trial_config(mode, **fields))
        assert len(set(messages)) == 1
        return str(messages[0])

    assert message(three_ranks, "mlp", "hsdp") == "parallelism.shard_size: must divide the world size 3, got 2"
    config = ParallelismConfig("hsdp", shard_size=1)
    assert message(two_ranks, "mlp", parallelism=config) == ""
    assert message(two_ranks, "lstm", "simple_fsdp").startswith("parallelism.mode: simple_fsdp cannot shard 0, which")
    for mode in ("ddp", "fsdp2", "simple_fsdp"):
        told = (
            f"parallelism.mode: {mode} averages dense gradients over ranks, and those of 0 are sparse: make them with "
        )
        assert message(two_ranks, "sparse", mode) == told + "sparse=False, or train on one rank"
        told = (
            f"parallelism.mode: {mode} writes the first rank's parameters and buffers into those of all ranks, and "
            "elements of 0.mask share memory, as in an expanded view: make them with contiguous(), or train on one rank"
        )
        assert message(two_ranks, "expanded", mode) == told
        assert message(two_ranks, "expanded_once", mode) == ""
    assert message(two_ranks, "lazy").startswith("workload: weight, bias have no shape yet, which ranks have to share")
    unshardable = "parallelism.mode: fsdp2 cannot shard parameters"
    told = f"{unshardable} that are not contiguous (0.weight): lay them out in row-major order, as a transpose or"
    assert message(two_ranks, "strided", "fsdp2").startswith(told)
    assert message(two_ranks, "empty", "fsdp2").startswith(f"{unshardable} without elements (1.0): leave them out")
    assert message(two_ranks, "strided") == message(two_ranks, "empty") == ""
    compression = CompressionConfig()
    assert message(two_ranks, "scalar", compression=compression).startswith(
        "compression: is not for parameters without"
    )


@pytest.mark.parametrize("mode", MODES)
def test_finished_trials_leave_no_module_group_or_memory_behind(two_ranks: WarmRanks, mode: str) -> None:
    for sizes, num_alive, num_new_groups in two_ranks.run(modules_alive_after, mode, 8):
        assert num_alive == 0
        assert num_new_groups == 0
        # The allocator's noise is below 4 MB; what one trial allocates would show only if it were large.
        assert sizes[-1] - sizes[4] < 8e6, sizes


def test_one_process_trains_the_plain_model_in_every_mode() -> None:
    expected = train_alone("mlp", trial_config(num_steps=3))
    for mode in MODES:
        found = train_alone("mlp", trial_config(mode, num_steps=3))
        assert_same_bits(found.parameters, expected.parameters)
    model = build("mlp")
    assert type(optimizer_of("adamw", model).param_groups[0]["params"][0]) is torch.nn.Parameter
