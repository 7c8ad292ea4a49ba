from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.trainers.trials import OPTIMIZERS, assert_same_bits, final_state, small_trial, without_clock
from trainers.config import Diverged, InvalidConfig, OptimizerConfig, TrialConfig
from trainers.loop import train
from trainers.ranks.context import RankContext, single_process_context
from trainers.workload.description import LOOP_METRICS, TARGET_METRICS
from trainers.workloads.digits.digits import DigitsMLP
from trainers.workloads.registry import UnknownWorkload, describe

DROPOUT = {"hidden_sizes": [32, 16], "dropout": 0.2}


def test_the_default_trial_reaches_90_percent_with_adamw() -> None:
    digits = describe("digits-mlp")
    config = TrialConfig(
        workload="digits-mlp",
        optimizer=OPTIMIZERS["adamw"],
        num_steps=digits.default_num_steps,
        evaluate_every=digits.default_evaluate_every,
        batch_size=digits.default_batch_size,
    )
    measurements = list(train(config, single_process_context()))
    assert measurements[-1].metrics["validation_accuracy"] > 0.9
    assert measurements[-1].metrics["train_loss"] < measurements[0].metrics["train_loss"] / 5
    measured = digits.metrics.keys() | LOOP_METRICS.keys() - set(TARGET_METRICS) - {"tokens_per_second"}
    assert all(m.metrics.keys() == measured for m in measurements)


@pytest.mark.parametrize(
    ("num_steps", "evaluate_every", "steps"),
    [(30, 10, [10, 20, 30]), (35, 10, [10, 20, 30, 35]), (5, 10, [5]), (2, 1, [1, 2])],
)
def test_the_last_step_is_always_measured(num_steps: int, evaluate_every: int, steps: list[int]) -> None:
    config = small_trial(num_steps=num_steps, evaluate_every=evaluate_every)
    measurements = list(train(config, single_process_context()))
    assert [m.step for m in measurements] == steps
    assert [m.epoch for m in measurements] == [step * 48 / 1437 for step in steps]
    seconds = [m.seconds for m in measurements]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0


def test_a_batch_larger_than_the_training_set_is_remarked_on() -> None:
    for batch_size, remarks in (
        (1437, ()),
        (1438, ("a batch of 1,438 has some of the 1,437 training examples twice or more",)),
    ):
        config = replace(small_trial(num_steps=1), batch_size=batch_size)
        assert next(train(config, single_process_context())).remarks == remarks


def test_train_loss_is_the_mean_since_the_last_measurement() -> None:
    every_step = [m.metrics["train_loss"] for m in train(small_trial(evaluate_every=1), single_process_context())]
    every_ten = [m.metrics["train_loss"] for m in train(small_trial(), single_process_context())]
    assert every_ten == [sum(every_step[start : start + 10]) / 10 for start in range(0, 40, 10)]


def test_equal_configs_train_equal_models_and_seeds_differ() -> None:
    config = small_trial(workload_options=DROPOUT)
    first = list(train(config, single_process_context()))
    list(train(small_trial("sgd", seed=7), single_process_context()))
    assert without_clock(list(train(config, single_process_context()))) == without_clock(first)
    other = list(train(small_trial(workload_options=DROPOUT, seed=1), single_process_context()))
    assert without_clock(other) != without_clock(first)


def test_no_rank_draws_again_the_numbers_that_became_the_parameters() -> None:
    # A trial that draws nothing while it trains: its generator is where it started.
    config = small_trial(num_steps=1)
    for _ in train(config, single_process_context()):
        pass
    started = torch.get_rng_state()
    torch.manual_seed(config.seed)
    assert not started.equal(torch.get_rng_state())


def test_trials_interleaved_in_a_process_do_not_disturb_each_other() -> None:
    config = small_trial(workload_options=DROPOUT)
    alone = without_clock(list(train(config, single_process_context())))
    pairs = zip(train(config, single_process_context()), train(config, single_process_context()), strict=True)
    one, other = (list(measurements) for measurements in zip(*pairs, strict=True))
    assert without_clock(one) == alone
    assert without_clock(other) == alone


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_resume_is_bit_identical(optimizer: str, tmp_path: Path) -> None:
    config = small_trial(optimizer, workload_options=DROPOUT, gradient_clip_norm=1.0)
    whole = list(train(config, single_process_context(checkpoint_directory=tmp_path / "whole")))
    for stop_after in (1, 3):
        directory = tmp_path / f"stopped after {stop_after}"
        context = single_process_context(checkpoint_directory=directory)
        stopped = list(islice(train(config, context), stop_after))
        torch.manual_seed(999)
        resumed = list(train(config, context))
        # The measurement of the checkpoint is given again, clock included.
        assert resumed[0] == stopped[-1]
        assert without_clock(stopped + resumed[1:]) == without_clock(whole)
        assert resumed[1].seconds > resumed[0].seconds
        assert_same_bits(final_state(directory, config), final_state(tmp_path / "whole", config))


@pytest.mark.slow
def test_a_trial_that_goes_on_with_its_batches_in_more_parts_sees_the_same_batches(tmp_path: Path) -> None:
    config = small_trial("shampoo")
    whole = list(train(config, single_process_context()))
    begun = list(islice(train(config, single_process_context(checkpoint_directory=tmp_path)), 1))
    rest = list(train(replace(config, accumulation_steps=2), single_process_context(checkpoint_directory=tmp_path)))
    assert [measured.step for measured in rest] == [measured.step for measured in whole]
    assert rest[0] == begun[0]
    assert rest[-1].metrics["validation_loss"] == pytest.approx(whole[-1].metrics["validation_loss"], rel=1e-4)


def test_a_trial_that_was_complete_gives_its_last_measurement_again(tmp_path: Path) -> None:
    context = single_process_context(checkpoint_directory=tmp_path)
    measurements = list(train(small_trial(), context))
    assert list(train(small_trial(), context)) == measurements[-1:]


def test_checkpoints_are_as_far_apart_as_asked(tmp_path: Path) -> None:
    config = small_trial(checkpoint_every=20, num_steps=50)
    context = single_process_context(checkpoint_directory=tmp_path)
    # One may be on its way to the disk under another name.
    written = [
        sorted(path.name.removeprefix(".partial-")[:13] for path in tmp_path.iterdir()) for _ in train(config, context)
    ]
    assert written == [
        [],
        ["step-00000020"],
        ["step-00000020"],
        ["step-00000020", "step-00000040"],
        ["step-00000040", "step-00000050"],
    ]


def test_measurements_after_the_checkpoint_are_taken_again_alike(tmp_path: Path) -> None:
    config = small_trial("shampoo", checkpoint_every=20)
    context = single_process_context(checkpoint_directory=tmp_path)
    first = list(islice(train(config, context), 3))
    again = list(train(config, context))
    assert [m.step for m in again] == [20, 30, 40]
    assert without_clock(again[:2]) == without_clock(first[1:])


@pytest.mark.parametrize("max_loss", [1e4, 3.0])
def test_a_huge_learning_rate_diverges_within_a_step(max_loss: float) -> None:
    # After the first step the parameters are huge, and the next loss shows it.
    config = small_trial(OptimizerConfig("sgd", {"lr": 1e6}), evaluate_every=40, max_loss=max_loss)
    with pytest.raises(Diverged, match=rf"^diverged at step 2: training loss .* above {max_loss:g} on 1 of 1 ranks; "):
        next(train(config, single_process_context()))


def test_a_metric_that_is_not_finite_diverges() -> None:
    # The update of the last step overflows; no training loss comes after it, only the measurement.
    config = small_trial(OptimizerConfig("sgd", {"lr": 1e38}), num_steps=1)
    with pytest.raises(Diverged, match=r"^diverged at step 1: validation_loss is "):
        next(train(config, single_process_context()))


@pytest.mark.parametrize("name", ["", "a\0b", "of \ud800", "x" * 101, 3], ids=repr)
def test_a_metric_with_a_name_that_nothing_can_keep_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = DigitsMLP.evaluate

    def more(self: DigitsMLP, model: nn.Module, **ranks: Any) -> Mapping[str, tuple[float, float]]:
        return {**evaluate(self, model, **ranks), name: (1.0, 1.0)}

    monkeypatch.setattr(DigitsMLP, "evaluate", more)
    with pytest.raises(ValueError, match=r"^a metric must have a name of 1 to 100 printable characters, got "):
        next(train(small_trial(), single_process_context()))


@pytest.mark.parametrize("remarks", ["one text", [3], [None]], ids=repr)
def test_remarks_that_are_no_texts_are_refused(remarks: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DigitsMLP, "remarks", lambda _self: remarks, raising=False)
    with pytest.raises(ValueError, match=r"^remarks must be a sequence of texts, got "):
        next(train(small_trial(), single_process_context()))


def test_remarks_of_before_a_pause_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small_trial(checkpoint_every=10)
    for met in ("broken.png", "cut.jpg"):
        remarks = ["not read: test/", f"unreadable: {met}"]
        monkeypatch.setattr(DigitsMLP, "remarks", lambda _self, remarks=remarks: remarks, raising=False)
        *_, last = islice(train(config, single_process_context(checkpoint_directory=tmp_path)), 2)
    assert last.remarks == ("not read: test/", "unreadable: broken.png", "unreadable: cut.jpg")


@pytest.mark.parametrize("shares", [None, 0.3, {"validation_loss": 0.3}, {"validation_loss": ("0.3 of", 1)}], ids=repr)
def test_an_evaluation_without_sums_and_weights_is_refused(shares: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DigitsMLP, "evaluate", lambda *_model, **_ranks: shares)
    with pytest.raises(ValueError, match=r"^evaluate must give \{metric: \(sum, weight\)\}, got "):
        next(train(small_trial(), single_process_context()))


@pytest.mark.parametrize("name", ["validation_loss", "step_seconds"])
def test_a_count_with_the_name_of_a_metric_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DigitsMLP, "counts", lambda _self: {"num_bad": 1, name: 7}, raising=False)
    with pytest.raises(ValueError, match=rf"^counts must not have the names of metrics, got {name}$"):
        next(train(small_trial(), single_process_context()))


def test_a_batch_that_ranks_cannot_share_is_refused_with_the_values() -> None:
    with pytest.raises(InvalidConfig, match=r"^batch_size: must be divisible by the world size 5, got 48"):
        next(train(small_trial(), RankContext(rank=0, world_size=5, device="cpu")))


def test_an_unknown_workload_is_refused() -> None:
    with pytest.raises(UnknownWorkload):
        next(train(small_trial(workload="nothing", workload_options={}), single_process_context()))


def test_a_rank_outside_the_world_is_refused() -> None:
    with pytest.raises(ValueError, match="got rank 2, world_size 2"):
        RankContext(rank=2, world_size=2, device="cpu")
