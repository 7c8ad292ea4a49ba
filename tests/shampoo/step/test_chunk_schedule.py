"""Solving a step's refreshes together, and sharing its chunks out over threads, change nothing but the time it
takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from shampoo import Hyperparameters, Shampoo
from shampoo.linalg.per_matrix import Call, per_matrix_together
from shampoo.state import buckets
from shampoo.step import chunk_schedule, group_step
from shampoo.step.block_step import BlockDirection, Scratch, block_direction
from shampoo.step.chunk_schedule import ChunkStep, Step, Update
from tests.support.shampoo.members import REPRESENTATIVES, member
from tests.support.shampoo.settings import gradients_like, parameters, train

SHAPES = [(20, 16), (16, 24), (5, 9, 7), (11,), (8, 8)]


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For each step that was shared out the number of its threads."""
    seen: list[int] = []

    def noted(work: Sequence[ChunkStep], h: Hyperparameters, update: Update, step: Step, num_threads: int) -> None:
        seen.append(num_threads)
        step_in_threads(work, h, update, step, num_threads)

    step_in_threads = chunk_schedule._step_in_threads
    monkeypatch.setattr(chunk_schedule, "_step_in_threads", noted)
    return seen


@pytest.fixture
def shared_out(in_threads: list[int], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Three threads, small chunks, and all of them shared out; what `in_threads` is."""
    monkeypatch.setattr(chunk_schedule, "MIN_OPERATIONS", 0)
    monkeypatch.setattr(chunk_schedule, "MAX_IMBALANCE", math.inf)
    monkeypatch.setattr(buckets, "CHUNK_BYTES", {"cpu": 512})
    monkeypatch.setattr(buckets, "_MIN_CHUNK_BLOCKS", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield in_threads
    torch.set_num_threads(before)


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of calls that were solved at once, each time."""
    sizes: list[int] = []

    def noted(calls: list[Call]) -> list[tuple[Tensor, ...]]:
        sizes.append(len(calls))
        return per_matrix_together(calls)

    monkeypatch.setattr(chunk_schedule, "per_matrix_together", noted)
    return sizes


def _trained(name: str, num_steps: int = 9) -> tuple[list[Tensor], list[Tensor]]:
    params = parameters(SHAPES, torch.float32)
    optimizer = Shampoo(params, **member(name, weight_decay=0.1, weight_decay_type="l2"))
    for step in range(num_steps):
        for index, (param, gradient) in enumerate(zip(params, gradients_like(params, step=step), strict=True)):
            param.grad = None if index == 1 and step < 3 else gradient  # a parameter with steps of its own
        optimizer.step()
    state = [value for param in params for value in optimizer.state[param].values() if isinstance(value, Tensor)]
    return [param.detach() for param in params], state


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(
    "name",
    [
        "shampoo_adam",
        "shampoo_none",
        "shampoo_by_eigh64",
        "shampoo_by_coupled_newton",
        "shampoo_by_qr",
        "shampoo_diagonal",
        "shampoo_together",
        "soap",
        "soap_by_qr",
        "soap_one_sided",
    ],
)
def test_weights_and_state_are_those_of_solving_chunk_by_chunk(
    name: str, together: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = _trained(name)
    assert max(together) > 2
    together.clear()
    monkeypatch.setattr(chunk_schedule, "MAX_BYTES", 0)
    alone = _trained(name)
    assert together == []
    for found, expected in zip((*ahead[0], *ahead[1]), (*alone[0], *alone[1]), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("name", ["kl", "shampoo_int8", "shampoo_tolerant", "spectral", "adam"])
def test_what_depends_on_more_than_statistics_is_not_solved_ahead(name: str, together: list[int]) -> None:
    _trained(name)
    assert together == []


def test_a_step_that_refreshes_much_is_not_held_in_memory_at_once(
    together: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A hundredth of the memory, for sides of a tenth of those of large layers.
    monkeypatch.setattr(chunk_schedule, "MAX_BYTES", chunk_schedule.MAX_BYTES // 100)
    params = parameters([(110, 110)] * 2, torch.float32)
    optimizer = Shampoo(params, max_preconditioner_dim=110, precondition_frequency=1)
    train(optimizer, params, range(1))
    assert chunk_schedule.MAX_BYTES > 4 * 4 * 110**2  # four factors fit,
    assert together == [2]  # one call for each side
    together.clear()
    more = parameters([(110, 110)] * 5, torch.float32)
    train(Shampoo(more, max_preconditioner_dim=110, precondition_frequency=1), more, range(1))
    assert together == []  # and ten do not


@pytest.mark.slow
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_in_threads_weights_and_state_are_those_of_one_thread(name: str, shared_out: list[int]) -> None:
    shared = _trained(name)
    assert shared_out == [3] * 9
    shared_out.clear()
    torch.set_num_threads(1)
    expected = _trained(name)
    assert shared_out == []
    for found, alone in zip((*shared[0], *shared[1]), (*expected[0], *expected[1]), strict=True):
        assert torch.equal(found, alone)


def test_what_fails_in_a_thread_is_raised_when_all_have_ended(
    shared_out: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[int, ...]] = []
    ended: list[tuple[int, ...]] = []

    def failing(scratch: Scratch, *arguments: Any, **named: Any) -> BlockDirection:
        block = tuple(scratch[0].shape[1:])
        begun.append(block)
        if block == (16, 24):
            raise ArithmeticError("of the second parameter")
        direction = block_direction(scratch, *arguments, **named)
        ended.append(block)
        return direction

    params = parameters(SHAPES, torch.float32)
    optimizer = Shampoo(params, max_preconditioner_dim=24)
    train(optimizer, params, range(1))
    assert shared_out == [3]
    monkeypatch.setattr(group_step, "block_direction", failing)
    with pytest.raises(ArithmeticError, match="of the second parameter"):
        train(optimizer, params, range(1, 2))
    assert begun.count((16, 24)) == 1
    assert len(begun) == len(ended) + 1


@pytest.mark.parametrize(
    ("num_blocks", "enough_blocks", "num_threads", "is_shared"),
    [
        (16, 16, 2, True),
        (20, 1, 2, True),
        (12, 1, 2, False),
        (4, 1, 2, False),
        (16, 17, 2, False),
        (16, 16, 1, False),
        (64, 1, 8, True),
        (72, 1, 9, False),
    ],
    ids=[
        "enough",
        "almost even",
        "uneven",
        "too few chunks",
        "too little work",
        "one thread",
        "of eight threads",
        "too many threads",
    ],
)
def test_chunks_are_shared_out_where_all_threads_are_kept_busy(
    num_blocks: int,
    enough_blocks: int,
    num_threads: int,
    in_threads: list[int],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_shared: bool,
) -> None:
    monkeypatch.setattr(chunk_schedule, "MIN_OPERATIONS", enough_blocks * 16 * 16 * (1 + 2 * 32))
    monkeypatch.setattr(buckets, "CHUNK_BYTES", {"cpu": 1})
    params = parameters([(16, 16 * num_blocks)], torch.float32)
    optimizer = Shampoo(params, max_preconditioner_dim=16, start_preconditioning_step=2)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(num_threads)
        train(optimizer, params, range(1))
    finally:
        torch.set_num_threads(before)
    assert in_threads == [num_threads] * is_shared


@pytest.mark.usefixtures("two_threads")
def test_what_a_step_refreshes_is_work_for_threads_too(in_threads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_schedule, "MIN_OPERATIONS", 1 + 16 * 16 * 16 * (1 + 2 * 32))
    monkeypatch.setattr(buckets, "CHUNK_BYTES", {"cpu": 1})
    params = parameters([(16, 16 * 16)], torch.float32)
    optimizer = Shampoo(params, max_preconditioner_dim=16, precondition_frequency=4, stagger_refresh=False)
    shared: list[bool] = []
    for step in range(9):
        in_threads.clear()
        train(optimizer, params, range(step, step + 1))
        shared.append(bool(in_threads))

    assert [step for step, is_shared in enumerate(shared, start=1) if is_shared] == [1, 5, 9]


@pytest.mark.parametrize(
    ("block", "blocks_of_chunks"),
    [
        (256, [4, 4, 4]),  # an eighth of the group is fewer
        (64, [128, 64]),  # and with small blocks an operation on so few too short
    ],
)
def test_a_small_model_has_chunks_for_several_threads(block: int, blocks_of_chunks: list[int]) -> None:
    params = [torch.zeros(512, 1024), torch.zeros(512, 512)]
    h = Hyperparameters(max_preconditioner_dim=block)
    made = buckets.make_buckets([buckets.Stepped(tuple(param.shape), param, param) for param in params], h)
    chunks = [chunk for bucket in made for _, chunk in bucket.chunks(dict.fromkeys(params, 1))]
    assert [chunk.stop - chunk.start for chunk in chunks] == blocks_of_chunks
