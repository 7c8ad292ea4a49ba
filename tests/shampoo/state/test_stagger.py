"""When units (one factor of one block) are refreshed: the phases by themselves, and as an optimizer follows them."""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import shampoo.state.buckets
from shampoo import Shampoo
from shampoo.hyperparameters import DEFAULTS, Hyperparameters
from shampoo.state.blocking import regions
from shampoo.state.buckets import Stepped, make_buckets
from shampoo.state.factors import side_kinds
from shampoo.state.stagger import lines
from tests.support.shampoo.members import OF_EACH_TIMING, REPRESENTATIVES, WITH_FACTORS, member
from tests.support.shampoo.settings import gradients_like, parameters, train

Buckets = list[tuple[int, tuple[int, ...]]]

# Number of blocks, and the cost of each side's unit: d³, or 0 for a diagonal factor.
BUCKETS = st.lists(
    st.tuples(
        st.integers(1, 30),
        st.lists(st.sampled_from([0, 1, 8, 27, 4**3, 32**3, 1024**3]), max_size=3).map(tuple),
    ),
    max_size=5,
)
PERIODS = st.sampled_from([1, 2, 3, 7, 10, 50, 1000])


def _phases(buckets: Buckets, period: int) -> list[int]:
    """The phases of all units in storage order."""
    return [
        line.phase(block, side, period)
        for line in lines(buckets)
        for block in range(line.num_blocks)
        for side in range(len(line.side_costs))
    ]


def _costs(buckets: Buckets) -> list[int]:
    return [cost for num_blocks, costs in buckets for _ in range(num_blocks) for cost in costs]


def _expected_phases(costs: Sequence[int], period: int) -> list[int]:
    """φ = ⌊f/n ⌊n (C_before + c/2) / C_total⌋⌋, in exact arithmetic; the last unit's end would be n itself.

    n is f, or less where that leaves an even number of the largest units for each.
    """
    total = sum(costs)
    if total == 0:
        return [0] * len(costs)
    num_units = math.floor(Fraction(total, max(costs)) + Fraction(1, 2))
    together = 2 * math.ceil(Fraction(num_units, 2 * period))
    n = min(period, math.ceil(Fraction(num_units, together)))
    starts = itertools.accumulate(costs, initial=0)
    stretches = (int(n * (start + Fraction(cost, 2)) / total) for start, cost in zip(starts, costs, strict=False))
    return [int(Fraction(period, n) * min(stretch, n - 1)) for stretch in stretches]


@hypothesis.settings(deadline=None)  # a busy machine may take any time for an example
@given(buckets=BUCKETS, period=PERIODS)
def test_a_phase_is_that_of_the_stretch_in_which_the_middle_of_a_unit_lies(buckets: Buckets, period: int) -> None:
    phases = _phases(buckets, period)
    assert phases == _expected_phases(_costs(buckets), period)
    assert all(0 <= phase < period for phase in phases)
    assert phases == sorted(phases)


@hypothesis.settings(deadline=None)  # a busy machine may take any time for an example
@given(buckets=BUCKETS, period=PERIODS)
def test_no_steps_share_exceeds_the_mean_by_more_than_three_units(buckets: Buckets, period: int) -> None:
    costs = _costs(buckets)
    shares = [0] * period
    for phase, cost in zip(_phases(buckets, period), costs, strict=True):
        shares[phase] += cost
    assert sum(shares) == sum(costs)
    assert max(shares) <= Fraction(sum(costs), period) + 3 * max(costs, default=0)


@hypothesis.settings(deadline=None)  # a busy machine may take any time for an example
@given(buckets=BUCKETS, period=PERIODS)
def test_the_units_of_a_phase_are_consecutive_rows_and_each_row_belongs_to_one(buckets: Buckets, period: int) -> None:
    for line in lines(buckets):
        for side in range(len(line.side_costs)):
            end = 0
            for phase in range(period):
                start, stop = line.rows(side, phase, period)
                assert start == end
                assert all(line.phase(block, side, period) == phase for block in range(start, stop))
                end = stop
            assert end == line.num_blocks


def test_equal_units_are_dealt_out_in_even_numbers() -> None:
    assert _phases([(4, (8, 8))], 4) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert _phases([(4, (8, 8))], 8) == [0, 0, 2, 2, 4, 4, 6, 6]
    assert _phases([(4, (8, 8))], 80) == [0, 0, 20, 20, 40, 40, 60, 60]
    assert _phases([(6, (8, 8))], 4) == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]  # not three in each of four
    assert _phases([(1, (8, 8))], 50) == [0, 0]


@hypothesis.settings(deadline=None)  # a busy machine may take any time for an example
@given(num_units=st.integers(1, 3000), period=PERIODS)
def test_of_equal_units_no_step_has_more_than_their_mean_made_even(num_units: int, period: int) -> None:
    together = collections.Counter(_phases([(num_units, (8,))], period))
    assert max(together.values()) <= 2 * math.ceil(Fraction(num_units, 2 * period))


def test_small_units_beside_large_ones_take_no_steps_from_them() -> None:
    assert _phases([(2, (1,)), (2, (1024**3, 1024**3)), (2, (1,))], 10) == [0, 0, 0, 0, 5, 5, 5, 5]


# --- a real optimizer ---

# Vectors, several buckets, several regions of one parameter, more rows in a bucket than the smallest chunk has.
SHAPES = [(13,), (6, 7), (9, 4, 5), (40, 16), (16, 8), (3, 40), (24, 24), (40, 40), (40, 40), (40, 40)]
PERIOD = 5

Unit = tuple[int, str, int]
"""Parameter, the name of its state, row."""


def _units(config: dict[str, Any], shapes: Sequence[tuple[int, ...]]) -> list[tuple[Unit, int]]:
    """All units with a factor in storage order, and their cost, from the shapes alone."""
    h = Hyperparameters(**{**DEFAULTS, **config})
    buckets: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}
    for index, shape in enumerate(shapes):
        for number, region in enumerate(regions(shape, h)):
            buckets.setdefault(region.block, []).extend((index, number, row) for row in range(region.num_blocks))
    return [
        ((index, f"refreshed{side}.{number}", row), d**3 if kind == "full" else 0)
        for block, rows in buckets.items()
        for index, number, row in rows
        for side, (d, kind) in enumerate(zip(block, side_kinds(block, h), strict=False))
        if kind != "identity"
    ]


def _expected(config: dict[str, Any]) -> dict[Unit, int]:
    """The phase of each unit."""
    units = _units(config, SHAPES)
    phases = _expected_phases([cost for _, cost in units], PERIOD)
    if not config.get("stagger_refresh", True):
        phases = [0] * len(units)
    return {unit: phase for (unit, _), phase in zip(units, phases, strict=True)}


def _refreshed(optimizer: Shampoo, params: list[nn.Parameter]) -> dict[Unit, int]:
    """The step at which each unit was refreshed last."""
    return {
        (index, key, row): step
        for index, param in enumerate(params)
        for key, value in optimizer.state[param].items()
        if key.startswith("refreshed")
        for row, step in enumerate(value.tolist())
    }


def _config(name: str, **changes: Any) -> dict[str, Any]:
    return {**member(name, precondition_frequency=PERIOD), **changes}


def _first(config: dict[str, Any]) -> int:
    first_statistics: int = config.get("statistics_frequency") or 1
    by_default = first_statistics + (config.get("preconditioner") == "soap")
    return config.get("start_preconditioning_step") or by_default


@pytest.mark.parametrize("name", [name for name in OF_EACH_TIMING if name in WITH_FACTORS])
def test_all_units_are_refreshed_at_the_first_step_and_then_once_in_a_period_each_at_its_phase(name: str) -> None:
    config = _config(name)
    phases, s = _expected(config), _first(config)
    params = parameters(SHAPES)
    optimizer = Shampoo(params, **config)
    assert set(_refreshed(optimizer, params)) == set(phases)
    times: dict[Unit, list[int]] = {unit: [] for unit in phases}
    for t in range(1, s + 2 * PERIOD + 1):
        train(optimizer, params, range(t, t + 1))
        for unit, last in _refreshed(optimizer, params).items():
            if last == t:
                times[unit].append(t)
    for unit, phase in phases.items():
        first = s + phase if phase else s + PERIOD
        assert times[unit] == sorted({s, *range(first, s + 2 * PERIOD + 1, PERIOD)}), unit
    if config.get("stagger_refresh", True):
        assert len(set(phases.values())) > 1  # else the test says little
    else:
        assert set(phases.values()) == {0}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in REPRESENTATIVES if name in WITH_FACTORS])
def test_small_chunks_change_neither_phases_nor_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, cut = parameters(SHAPES[:-2]), parameters(SHAPES[:-2])
    config = _config(name)
    one = Shampoo(whole, **config)
    monkeypatch.setitem(shampoo.state.buckets.CHUNK_BYTES, "cpu", 1)  # four blocks to a chunk
    other = Shampoo(cut, **config)
    num_chunks = [
        [sum(1 for _ in b.chunks(dict.fromkeys(p, 1))) for b in o._allocation.buckets()]
        for o, p in ((one, whole), (other, cut))
    ]
    assert max(num_chunks[0]) == 1
    assert max(num_chunks[1]) > 3
    for t in range(1, _first(config) + PERIOD + 1):
        train(one, whole, range(t, t + 1))
        train(other, cut, range(t, t + 1))
        assert _refreshed(one, whole) == _refreshed(other, cut)
    for param, expected in zip(cut, whole, strict=True):
        # Products of another number of blocks may round otherwise.
        torch.testing.assert_close(param, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in REPRESENTATIVES if name in WITH_FACTORS])
def test_a_parameter_that_began_late_keeps_its_phases_and_counts_its_own_steps(name: str) -> None:
    config = _config(name)
    phases, s = _expected(config), _first(config)
    params = parameters(SHAPES)
    optimizer = Shampoo(params, **config)
    delay = 3
    for step in range(1, s + 2 * PERIOD):
        for index, (param, gradient) in enumerate(zip(params, gradients_like(params, step=step), strict=True)):
            param.grad = gradient if index != 3 or step > delay else None
        optimizer.step()
        refreshed = _refreshed(optimizer, params)
        for unit, phase in phases.items():
            t = step - delay if unit[0] == 3 else step
            is_due = t == s or (t > s and (t - s) % PERIOD == phase)
            assert (refreshed[unit] == t > 0) == is_due, (unit, t)


@pytest.mark.parametrize("later", [3, 100])
@pytest.mark.parametrize("name", ["shampoo_adam", "soap"])
def test_a_start_that_is_raised_afterwards_moves_the_phases_and_stops_nothing(name: str, later: int) -> None:
    config = _config(name)
    phases = _expected(config)
    params = parameters(SHAPES)
    optimizer = Shampoo(params, **config)
    train(optimizer, params, range(1, 4))
    optimizer.param_groups[0]["start_preconditioning_step"] = later
    for t in range(4, 4 + PERIOD):
        train(optimizer, params, range(t, t + 1))
        refreshed = _refreshed(optimizer, params)
        due = {unit for unit, phase in phases.items() if (t - later) % PERIOD == phase}
        assert {unit for unit, last in refreshed.items() if last == t} == due


def test_the_phases_of_a_large_model_level_its_steps() -> None:
    # Every step refreshes 1/10 of the cost of all units, to within one unit, which here are at most 1% of it.
    shapes = [(96, 96)] * 40 + [(96, 384), (384, 96)] * 20
    h = Hyperparameters(max_preconditioner_dim=96, precondition_frequency=10)
    params = [torch.empty(shape, device="meta") for shape in shapes]
    buckets = make_buckets([Stepped(tuple(param.shape), param, param) for param in params], h)
    shares = [
        sum(
            cost * (stop - start)
            for bucket in buckets
            for side, cost in enumerate(bucket.line.side_costs)
            for start, stop in [bucket.line.rows(side, phase, 10)]
        )
        for phase in range(10)
    ]
    assert sum(shares) == 400 * 96**3
    assert max(shares) <= 1.02 * sum(shares) / 10


def test_blocks_of_which_some_are_elsewhere_keep_their_phases() -> None:
    shapes = [(96, 96)] * 7 + [(32, 64)] * 5 + [(96, 96)] * 6
    params = [torch.empty(shape, device="meta") for shape in shapes]
    h = Hyperparameters(max_preconditioner_dim=32, precondition_frequency=10)

    def phases(elsewhere: set[torch.Tensor]) -> dict[tuple[torch.Tensor, int, int], int]:
        """By parameter, number of the block in it, and side."""
        return {
            (piece.param, block, side): bucket.line.phase(piece.start + block, side, 10)
            for bucket in make_buckets([Stepped(tuple(p.shape), p, None if p in elsewhere else p) for p in params], h)
            for piece in bucket.pieces
            for block in range(piece.stop - piece.start)
            for side in range(2)
        }

    whole = phases(set())
    parts = [phases(set(params) - set(params[rank::3])) for rank in range(3)]
    assert {unit: phase for part in parts for unit, phase in part.items()} == whole
    assert len(set(whole.values())) == 10


def test_blocks_of_a_parameter_of_which_some_are_elsewhere_keep_theirs() -> None:
    h = Hyperparameters(max_preconditioner_dim=32, precondition_frequency=10)
    shapes = [(96, 96), (64, 32), (96, 70), (96, 96)]
    likes = [torch.empty(shape, device="meta") for shape in shapes]
    counts = [[region.num_blocks for region in regions(shape, h)] for shape in shapes]

    def phases(rank: int | None) -> dict[tuple[int, int, int, int], int]:
        """By parameter, region, block in it, and side; of every third block, or of all."""
        stepped, tensors = [], []
        for like, of_regions in zip(likes, counts, strict=True):
            runs = tuple(
                tuple((block, block + 1) for block in range(num) if rank is None or block % 3 == rank)
                for num in of_regions
            )
            tensors.append(torch.empty(32 * 32 * 9, device="meta"))
            stepped.append(Stepped(tuple(like.shape), like, tensors[-1], runs))
        number_of = {tensor: number for number, tensor in enumerate(tensors)}
        found = {}
        for bucket in make_buckets(stepped, h):
            for piece in bucket.pieces:
                number = number_of[piece.param]
                of_param = stepped[number].runs
                assert of_param is not None
                blocks = [start for start, _ in of_param[piece.index]]
                for row, block in enumerate(blocks):
                    for side in range(2):
                        key = number, piece.index, block, side
                        found[key] = bucket.line.phase(piece.start + row, side, 10)
        return found

    whole = phases(None)
    assert {unit: phase for rank in range(3) for unit, phase in phases(rank).items()} == whole
    assert len(whole) == 2 * sum(map(sum, counts))
