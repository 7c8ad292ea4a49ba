"""Compiled trials: equal to eager ones, and compiled once for all trials of a kind."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

from tests.support.trainers.parallel.training import (
    MODES,
    RankResult,
    modules_alive_after,
    train_alone,
    train_compiled,
    train_model,
    trial_config,
)
from tests.support.trainers.ranks import WarmRanks
from trainers.parallel import compilation
from trainers.parallel.compilation import CompiledModel, run_uncompiled
from trainers.ranks.context import single_process_context

pytestmark = [
    pytest.mark.processes,
    # The compiler's own, on being imported and in tracing.
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is "),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]

NUM_STEPS = 5


def assert_close(found: RankResult, expected: RankResult) -> None:
    """To 1e-5: fused kernels round otherwise, and a few steps enlarge that little."""
    assert found.names == expected.names
    assert found.losses == pytest.approx(expected.losses, abs=1e-5)
    assert found.validation == pytest.approx(expected.validation, abs=1e-5)
    for name, parameter in expected.parameters[-1].items():
        torch.testing.assert_close(found.parameters[-1][name], parameter, rtol=0, atol=1e-5)


@pytest.mark.parametrize("recomputes", [False, True])
def test_a_compiled_trial_equals_an_eager_one_and_the_next_compiles_nothing(recomputes: bool) -> None:
    config = trial_config(compile=True, activation_checkpointing=recomputes, num_steps=NUM_STEPS)
    context = single_process_context()
    expected = train_alone("mlp", trial_config(num_steps=NUM_STEPS))
    first, num_graphs, _ = train_compiled("mlp", config, context)
    assert_close(first, expected)
    assert num_graphs > 0
    second, num_graphs, _ = train_compiled("mlp", config, context)
    assert_close(second, expected)
    assert num_graphs == 0


@pytest.mark.parametrize("mode", MODES)
def test_compiled_ranks_equal_eager_ones_and_compile_once(two_ranks: WarmRanks, mode: str) -> None:
    expected = two_ranks.run(train_model, "mlp", trial_config(mode, num_steps=NUM_STEPS))
    for is_first in (True, False):
        by_rank = two_ranks.run(train_compiled, "mlp", trial_config(mode, compile=True, num_steps=NUM_STEPS))
        for (outcome, num_graphs, _), eager in zip(by_rank, expected, strict=True):
            assert_close(outcome, eager)
            assert (num_graphs > 0) == is_first


def test_accumulation_in_compiled_ranks_equals_none(two_ranks: WarmRanks) -> None:
    expected = two_ranks.run(train_model, "mlp", trial_config("fsdp2", num_steps=NUM_STEPS))
    config = trial_config("fsdp2", compile=True, accumulation_steps=2, num_steps=NUM_STEPS)
    found = two_ranks.run(train_compiled, "mlp", config)
    for (outcome, _, _), eager in zip(found, expected, strict=True):
        assert_close(outcome, eager)


def test_compiled_trials_leave_no_module_or_memory_behind(two_ranks: WarmRanks) -> None:
    for sizes, num_alive, num_new_groups in two_ranks.run(modules_alive_after, "ddp", 8, True):
        assert num_alive == 0
        assert num_new_groups == 0
        assert sizes[-1] - sizes[4] < 8e6, sizes


@pytest.mark.parametrize("max_num_kinds", [32, 6])
def test_models_of_many_shapes_are_all_compiled(monkeypatch: pytest.MonkeyPatch, max_num_kinds: int) -> None:
    # More than the eight variants of one code object that dynamo would keep; and more than we keep, if that is 6.
    monkeypatch.setattr(compilation, "MAX_NUM_KINDS", max_num_kinds)
    # What dynamo keeps is the same whatever the code is made into, and making a kernel of it takes longer.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    compilation.forget_compiled_code()
    for width in range(2, 14):
        model = nn.Linear(3, width)
        compiled = CompiledModel(model, kind="test")
        num_graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        torch.testing.assert_close(compiled(torch.ones(2, 3)), model(torch.ones(2, 3)))
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == num_graphs + 1
        assert compilation._compiled_kind.cache_info().currsize <= max_num_kinds


def test_inside_run_uncompiled_nothing_is_compiled() -> None:
    compiled = CompiledModel(nn.Linear(3, 4), kind="uncompiled")
    num_graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    with run_uncompiled():
        compiled(torch.ones(2, 3))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == num_graphs
