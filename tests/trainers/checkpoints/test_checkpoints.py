"""Checkpoints on one rank: exact, in the background, the newest N."""

from __future__ import annotations

import json
import math
import os
import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.file_size_limit import files_end_at
from tests.support.trainers.checkpoint_states import (
    OPTIMIZERS,
    Training,
    checkpoints,
    measurement,
    names,
    newest_step,
    save,
    small_state,
    start_to_save,
)
from tests.support.trainers.trials import assert_same_bits
from trainers.checkpoints import (
    CheckpointMismatch,
    CheckpointNotWritten,
    PerRank,
    load_optimizer_state,
    optimizer_state,
    random_state,
    seed_random,
    set_random_state,
)
from trainers.ranks.context import single_process_context

CONTEXT = single_process_context()


def test_what_was_saved_is_loaded_bit_for_bit(tmp_path: Path) -> None:
    state: dict[str, Any] = {
        "plain": {
            1: None,
            "1": True,
            "text": "é\n\ud800",
            "big": 1 << 80,
            "-0": -0.0,
            "inf": -math.inf,
            None: 0.1 + 0.2,
        },
        "pairs": [(0.9, 0.999), [], (), {}],
        "a/b%c": {"d.e": torch.randn(3, 4).t()},
        "a": {"b%c": torch.tensor(7)},
        "numpy": np.float64(0.1),
        "empty": torch.empty(0, 3),
        "view": torch.arange(10)[2:8:2],
        "grad": torch.nn.Parameter(torch.ones(2)),
        "own": PerRank({"state": torch.randn(2)}),
        **{
            str(dtype): torch.tensor([0, 1, 0, 1]).to(dtype)
            for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint32)
        },
        **{
            str(dtype): torch.randn(5).to(dtype)
            for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64)
        },
        "nan": torch.tensor([math.nan, -0.0, math.inf]).view(torch.int32).view(torch.float32),
    }
    to = checkpoints(tmp_path / "new" / "directory")
    rng = random_state(CONTEXT)
    to.save(state, measurement=measurement(10), random_state=rng, progress={"targets": [(3, None)]})
    restored = to.load({})
    assert restored is not None
    assert (restored.measurement, restored.world_size, restored.skipped) == (measurement(10), 1, [])
    assert_same_bits(restored.progress, {"targets": [(3, None)]})
    assert_same_bits(restored.random_state, rng)
    expected: dict[str, Any] = {**state, "numpy": 0.1, "own": state["own"].value, "grad": state["grad"].detach()}
    assert math.copysign(1, restored.state["plain"]["-0"]) == -1
    assert torch.equal(restored.state.pop("nan").view(torch.int32), expected.pop("nan").view(torch.int32))
    assert_same_bits(restored.state, expected)


def test_nan_among_plain_values_is_loaded(tmp_path: Path) -> None:
    to = checkpoints(tmp_path)
    save(to, 10, {"value": math.nan})
    restored = to.load({})
    assert restored is not None
    assert math.isnan(restored.state["value"])


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": [object()]}, r"state/a/0 is <object .*only tensors and plain values"),
        ({"a": {1.5: 0}}, r"state/a has the key 1\.5"),
        ({"a": {0: torch.ones(1), "0": torch.ones(1)}}, "two tensors of the state have the name 'state/a/0'"),
        ({"a": torch.eye(2).to_sparse()}, "state/a is sparse"),
        ({"a": torch.zeros(2, dtype=torch.complex128)}, "state/a is torch.complex128"),
    ],
)
def test_what_cannot_be_saved_is_refused_by_name(tmp_path: Path, state: Any, message: str) -> None:
    to = checkpoints(tmp_path)
    with pytest.raises(ValueError, match=message):
        save(to, 10, state)
    save(to, 20)
    assert newest_step(tmp_path) == 20


def test_no_checkpoint_and_no_directory_load_as_none(tmp_path: Path) -> None:
    assert newest_step(tmp_path) is None
    assert newest_step(tmp_path / "missing") is None


def test_keeping_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="num_kept must be at least 1, got 0"):
        checkpoints(tmp_path, num_kept=0)


@pytest.mark.parametrize("num_kept", [1, 3])
def test_the_newest_are_kept(tmp_path: Path, num_kept: int) -> None:
    to = checkpoints(tmp_path, num_kept=num_kept)
    for step in (10, 20, 30, 40, 100_000_000):
        save(to, step)
    kept = ["step-00000030", "step-00000040", "step-100000000"]
    assert names(tmp_path) == set(kept[-num_kept:])
    assert newest_step(tmp_path) == 100_000_000


def test_a_state_may_change_as_soon_as_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_write = threading.Event()
    monkeypatch.setattr(os, "fsync", lambda _: may_write.wait(30))
    to = checkpoints(tmp_path)
    weight, counts = torch.ones(3), [1]
    state = {"weight": weight, "counts": counts}
    to.save(state, measurement=measurement(10), random_state={}, progress={})  # returns though the disk is stuck
    weight.zero_()
    counts[0] = 2
    assert not any(name.startswith("step") for name in names(tmp_path))
    may_write.set()
    to.wait()
    restored = to.load({})
    assert restored is not None
    assert_same_bits(restored.state, {"weight": torch.ones(3), "counts": [1]})


def test_a_trial_that_was_dropped_while_writing_is_found_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write = threading.Event()
    monkeypatch.setattr(os, "fsync", lambda _: may_write.wait(30))
    start_to_save(checkpoints(tmp_path), 10)
    threading.Timer(0.1, may_write.set).start()
    assert newest_step(tmp_path) == 10


def test_a_state_whose_structure_changes_is_saved_as_it_is_then(tmp_path: Path) -> None:
    to = checkpoints(tmp_path)
    for step in (10, 20, 30):
        state = {"snapshots": [torch.full((n + 1,), float(n)) for n in range(step // 10)]}
        save(to, step, state)
        restored = to.load({"snapshots": []})
        assert restored is not None
        assert_same_bits(restored.state, state)


def test_a_measurement_comes_back_as_it_was(tmp_path: Path) -> None:
    reported = replace(measurement(10), remarks=("of /data are not read: test/",))
    to = checkpoints(tmp_path)
    to.save(small_state(1), measurement=reported, random_state=None, progress=None)
    to.wait()
    restored = checkpoints(tmp_path).load(small_state(2))
    assert restored is not None
    assert restored.measurement == reported


def test_another_config_is_refused_and_what_differs_named(tmp_path: Path) -> None:
    save(checkpoints(tmp_path), 10)
    with pytest.raises(CheckpointMismatch, match="another config: batch_size 48 there, 96 here; seed 0 there, 1 here"):
        checkpoints(tmp_path, batch_size=96, seed=1).load(small_state(1))


def test_a_trial_may_go_on_with_other_fields_about_checkpoints(tmp_path: Path) -> None:
    save(checkpoints(tmp_path), 10)
    assert (
        checkpoints(tmp_path, keep_checkpoints=5, checkpoint_every=20, accumulation_steps=2).load(small_state(1))
        is not None
    )


@pytest.mark.parametrize("weight", [torch.zeros(50, 49), torch.zeros(50, 50, dtype=torch.float64)])
def test_tensors_that_do_not_fit_the_template_are_refused(tmp_path: Path, weight: torch.Tensor) -> None:
    save(checkpoints(tmp_path), 10)
    with pytest.raises(CheckpointMismatch, match=r"state/model/weight is torch.float32 \(50, 50\) there, torch.float"):
        checkpoints(tmp_path).load({"model": {"weight": weight}})


def test_an_older_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "step-00000010").mkdir()
    (tmp_path / "step-00000010" / "manifest.json").write_text(json.dumps({"format": 1, "step": 10}))
    with pytest.raises(CheckpointMismatch, match="has format 1, this version reads format 3"):
        newest_step(tmp_path)


def test_the_files_of_tensors_are_in_the_safetensors_format(tmp_path: Path) -> None:
    state = {"model": {"a": torch.arange(3, dtype=torch.uint8), "b": torch.randn(2, 5), "c": torch.tensor(1.0).half()}}
    save(checkpoints(tmp_path), 10, state)
    content = (tmp_path / "step-00000010" / "rank-00000.safetensors").read_bytes()
    header_bytes = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + header_bytes]), content[8 + header_bytes :]
    assert header_bytes % 8 == 0
    ends = [0]
    for entry in header.values():  # without gaps and to the end, as the format demands
        start, end = entry["data_offsets"]
        assert start == ends[-1]
        ends.append(end)
    assert ends[-1] == len(data)
    entry = header["state/model/b"]
    assert (entry["dtype"], entry["shape"]) == ("F32", [2, 5])
    stored = torch.frombuffer(bytearray(data[slice(*entry["data_offsets"])]), dtype=torch.float32)
    assert torch.equal(stored.view(2, 5), state["model"]["b"])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_goes_on_bit_for_bit(tmp_path: Path, optimizer: str) -> None:
    uninterrupted, resumed = Training(optimizer), Training(optimizer, seed=1)
    uninterrupted.steps(3)
    save(checkpoints(tmp_path), 10, uninterrupted.state())
    restored = checkpoints(tmp_path).load(resumed.template())
    assert restored is not None
    assert_same_bits(restored.state["optimizer"], optimizer_state(uninterrupted.optimizer))
    resumed.load(restored)
    assert_same_bits(resumed.state(), uninterrupted.state())
    for training in (uninterrupted, resumed):
        training.steps(4)
    assert_same_bits(resumed.state(), uninterrupted.state())


@pytest.mark.parametrize("optimizer", ["adamw", "ema"])
def test_state_keeps_a_dtype_other_than_the_parameters(tmp_path: Path, optimizer: str) -> None:
    saved, loaded = (Training(optimizer, seed=seed, dtype=torch.bfloat16) for seed in (0, 1))
    saved.steps(2)
    for state in saved.optimizer.state.values():
        state["exp_avg_sq"] = torch.rand_like(state["exp_avg_sq"], dtype=torch.float32)
    save(checkpoints(tmp_path), 10, saved.state())
    restored = checkpoints(tmp_path).load(loaded.template())
    assert restored is not None
    load_optimizer_state(loaded.optimizer, restored.state["optimizer"])
    assert_same_bits(loaded.optimizer.state_dict(), saved.optimizer.state_dict())


def test_a_parameter_that_had_no_gradient_yet_has_no_state_after_loading(tmp_path: Path) -> None:
    saved, loaded = Training("adamw"), Training("adamw")
    saved.model[0].requires_grad_(False)
    saved.steps(1)
    loaded.steps(1)
    save(checkpoints(tmp_path), 10, saved.state())
    restored = checkpoints(tmp_path).load(loaded.template())
    assert restored is not None
    loaded.load(restored)
    assert set(loaded.optimizer.state_dict()["state"]) == {2, 3, 4, 5}


def test_all_random_generators_go_on_where_they_were(tmp_path: Path) -> None:
    def draw() -> list[float]:
        return [random.random(), random.gauss(0, 1), float(np.random.rand()), float(np.random.randn()), *torch.rand(2)]

    seed_random(2**40 + 1)
    first = draw()
    seed_random(2**40 + 1)
    assert draw() == first
    draw()  # leaves a Gaussian number over in Python's and in numpy's generator
    save(checkpoints(tmp_path), 10)
    expected = draw()
    draw()
    restored = checkpoints(tmp_path).load(small_state(1))
    assert restored is not None
    set_random_state(restored.random_state, CONTEXT)
    assert draw() == expected


@pytest.mark.parametrize("notices", ["save", "wait"])
def test_a_write_the_system_refuses_leaves_the_previous_one(tmp_path: Path, notices: str) -> None:
    to = checkpoints(tmp_path)
    save(to, 10)
    with files_end_at(1000):
        start_to_save(to, 20)
        with pytest.raises(CheckpointNotWritten, match=r"checkpoint of step 20 in .*rank 0: .*File too large"):
            to.wait() if notices == "wait" else save(to, 30)
    assert names(tmp_path) == {"step-00000010"}
    assert newest_step(tmp_path) == 10
    save(to, 30)  # room was made
    assert newest_step(tmp_path) == 30


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_state_on_a_device_is_saved_as_it_was_when_given(tmp_path: Path) -> None:
    context = single_process_context(device="cuda:0")
    to = checkpoints(tmp_path, context)
    weight = torch.randn(2000, 2000, device="cuda:0")
    expected = weight.cpu()
    to.save({"weight": weight}, measurement=measurement(10), random_state=random_state(context), progress={})
    weight.zero_()  # in the stream after the copy
    to.wait()
    restored = to.load({"weight": weight})
    assert restored is not None
    assert torch.equal(restored.state["weight"], expected)
    set_random_state(restored.random_state, context)
