"""Insights find what a known function of the parameters depends on, and nothing in noise."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from search_spaces import SearchSpace
from service.domain import Direction, FailureReason, TrialState
from service.evidence.insights import ParameterInsight, SideInsights, Trend
from service.scheduler.insights.compared import MAX_TRIALS, EndedTrial, compared, standings
from service.scheduler.insights.early_late import early_late
from service.scheduler.insights.of_side import insights_of_side

SPACE = SearchSpace.from_json(
    {
        "optimizer": "adamw",
        "parameters": [
            {"type": "float", "name": "lr", "low": 1e-4, "high": 1e-1, "scale": "log"},
            {"type": "float", "name": "weight_decay", "low": 1e-4, "high": 1e-1, "scale": "log"},
            {"type": "float", "name": "betas[1]", "low": 0.9, "high": 0.999, "scale": "reverse_log"},
            {"type": "integer", "name": "training.batch_size", "low": 16, "high": 256, "scale": "log"},
            {"type": "categorical", "name": "schedule.decay", "choices": ["cosine", "linear"]},
        ],
    }
)
FAMILY = SearchSpace.from_json(
    {
        "optimizer": "shampoo",
        "parameters": [
            {"type": "categorical", "name": "preconditioner", "choices": ["shampoo", "soap"]},
            *(
                {
                    "type": "float",
                    "name": "lr",
                    "low": low,
                    "high": 100 * low,
                    "scale": "log",
                    "when": {"preconditioner": [member]},
                }
                for member, low in (("shampoo", 1e-3), ("soap", 1e-4))
            ),
        ],
    }
)

Positions = dict[str, float]


def trial(number: int, value: float | None, state: TrialState = TrialState.COMPLETED, **fields: object) -> EndedTrial:
    known = {"id": str(number), "reason": None, "parameters": {}, "progress": 1.0, **fields}
    return EndedTrial(number=number, state=state, value=value, **known)  # type: ignore[arg-type]


def sampled(
    count: int,
    value_of: Callable[[Positions], float | None],
    *,
    space: SearchSpace = SPACE,
    noise: float = 0.05,
    seed: int = 0,
) -> list[EndedTrial]:
    """Trials at random points; `value_of` is given positions in the ranges, by name, and gives None: diverged."""
    rng, found = random.Random(seed), []
    for number in range(count):
        values = space.sample(rng)
        value = value_of({one.name: one.to_unit(values[one.name]) for one in space.active(values)})  # type: ignore[arg-type]
        if value is None:
            found.append(
                trial(number, None, TrialState.FAILED, reason=FailureReason.DIVERGED, parameters=values, progress=0.2)
            )
        else:
            found.append(trial(number, value + rng.gauss(0, noise), parameters=values))
    return found


def insights(
    trials: Sequence[EndedTrial], space: SearchSpace = SPACE, direction: Direction = Direction.MINIMIZE
) -> SideInsights:
    return insights_of_side("search", space, trials, direction, {})


def shares(found: SideInsights) -> dict[str, float]:
    return {one.label: one.importance.share for one in found.parameters if one.importance is not None}


def named(found: SideInsights, name: str) -> ParameterInsight:
    return next(one for one in found.parameters if one.name == name)


def bowl(at: Positions) -> float | None:
    """Best at lr in the middle of its range on its scale, a little at a low weight decay; diverges at high rates."""
    return None if at["lr"] > 0.85 else 3 * (at["lr"] - 0.5) ** 2 + 0.2 * at["weight_decay"]


@pytest.mark.slow
def test_a_bowl_over_one_parameter_is_found_with_its_middle_its_range_and_where_it_diverges() -> None:
    found = insights(sampled(120, bowl))
    lr = found.parameters[0]
    assert lr.importance is not None
    assert (lr.name, lr.importance.is_beyond_chance, lr.trend) == ("lr", True, Trend.BETWEEN)
    assert lr.importance.low <= lr.importance.share <= lr.importance.high
    assert lr.importance.share > 0.5
    assert lr.turns_at is not None
    assert lr.turns_at == pytest.approx(10**-2.5, rel=0.7)
    safe = lr.safe_range
    assert safe is not None
    assert 1e-3 < safe.low < lr.turns_at < safe.high < 2e-2
    assert safe.diverged_above is not None
    assert safe.diverged_below is None
    assert safe.diverged_above.num_diverged >= 0.9 * safe.diverged_above.num_trials
    assert 0.02 < safe.diverged_above.value < 0.05
    assert sum(shares(found).values()) == pytest.approx(1)
    assert named(found, "training.batch_size").trend is Trend.NONE


@pytest.mark.slow
@pytest.mark.parametrize(("sign", "trend"), [(1, Trend.LOWER), (-1, Trend.HIGHER)])
def test_a_parameter_that_is_better_in_one_direction_says_which(sign: int, trend: Trend) -> None:
    found = insights(sampled(40, lambda at: sign * at["lr"]))
    other = insights(sampled(40, lambda at: -sign * at["lr"]), direction=Direction.MAXIMIZE)
    for side in (found, other):
        assert (side.parameters[0].name, side.parameters[0].trend) == ("lr", trend)
        assert side.parameters[0].turns_at is None


@pytest.mark.slow
def test_the_better_choice_is_found() -> None:
    found = insights(sampled(60, lambda at: float(at["schedule.decay"] > 0.5)))
    cosine, linear = found.parameters[0].choices
    assert (found.parameters[0].name, cosine.value, linear.value) == ("schedule.decay", "cosine", "linear")
    assert cosine.standing is not None
    assert linear.standing is not None
    assert cosine.standing > linear.standing
    assert cosine.num_trials + linear.num_trials == 60


@pytest.mark.slow
def test_in_noise_nothing_is_important() -> None:
    alarms = 0
    for seed in range(8):
        found = insights(sampled(40, lambda _: 0.0, noise=1.0, seed=seed))
        alarms += any(one.importance and one.importance.is_beyond_chance for one in found.parameters)
        by_chance = [one for one in found.parameters if one.importance and not one.importance.is_beyond_chance]
        assert {one.trend for one in by_chance} <= {Trend.NONE, None}
    assert alarms <= 2  # 1 in 20 is expected; more than 2 of 8 come by chance once in 170 such tests


def test_too_few_trials_say_nothing() -> None:
    found = insights(sampled(11, bowl))
    assert found.has_few_trials
    assert not found.maps
    assert [(one.importance, one.trend, one.safe_range) for one in found.parameters] == [(None, None, None)] * 5


@pytest.mark.slow
def test_one_name_with_two_ranges_is_two_parameters_and_each_has_its_own_trials() -> None:
    def value(at: Positions) -> float:
        return 1 + at["lr"] if at["preconditioner"] > 0.5 else abs(at["lr"] - 0.5)

    found = insights(sampled(200, value, space=FAMILY), FAMILY)
    assert {one.label for one in found.parameters} == {
        "preconditioner",
        "lr (preconditioner shampoo)",
        "lr (preconditioner soap)",
    }
    assert [one.num_trials for one in found.parameters if one.name == "lr"].count(200) == 0
    assert sum(one.num_trials for one in found.parameters if one.name == "lr") == 200
    shampoo = next(one for one in found.parameters if one.label == "lr (preconditioner shampoo)")
    assert shampoo.trend is Trend.BETWEEN
    assert shampoo.safe_range is not None
    assert 1e-3 < shampoo.safe_range.low < 1e-2 < shampoo.safe_range.high < 1e-1


@pytest.mark.slow
def test_where_nearly_all_diverged_what_kept_the_others_from_it_is_found() -> None:
    found = insights(sampled(60, lambda at: 1.0 if at["lr"] < 0.12 else None))
    assert found.num_diverged > 45
    assert (found.parameters[0].name, found.parameters[0].trend) == ("lr", Trend.LOWER)


def test_where_all_diverged_alike_nothing_is_important() -> None:
    found = insights(sampled(30, lambda _: None))
    assert {one.importance.share for one in found.parameters if one.importance} == {0.0}


@pytest.mark.slow
def test_maps_show_the_best_corner_and_nothing_where_no_trial_was() -> None:
    found = insights(sampled(300, lambda at: at["lr"] + at["weight_decay"]))
    one = next(
        each
        for each in found.maps
        if {found.parameters[each.x].name, found.parameters[each.y].name} == {"lr", "weight_decay"}
    )
    assert len(one.standing) == len(one.y_values)
    assert len(one.standing[0]) == len(one.x_values)
    low, high = one.standing[0][0], one.standing[-1][-1]
    assert low is not None
    assert high is not None
    assert low > 0.8
    assert high < 0.2
    sparse = insights([each for each in sampled(80, bowl) if each.parameters["lr"] < 0.01])
    assert any(cell is None for row in sparse.maps[0].standing for cell in row)


@pytest.mark.slow
def test_of_many_trials_a_part_is_looked_at_and_all_are_counted() -> None:
    found = insights(sampled(MAX_TRIALS + 100, bowl))
    assert (found.num_trials, found.num_sampled) == (MAX_TRIALS + 100, MAX_TRIALS)


def test_pruned_trials_stand_below_completed_ones_and_diverged_ones_last() -> None:
    trials = [
        trial(0, 5.0),
        trial(1, 0.2, TrialState.PRUNED, progress=0.15),
        trial(2, 0.3, TrialState.PRUNED, progress=0.4),
        trial(3, 0.1, TrialState.FAILED, reason=FailureReason.DIVERGED),
        trial(4, None, TrialState.FAILED, reason=FailureReason.DIVERGED),
        trial(5, 1.0),
        trial(6, None),
    ]
    standing = standings(trials, Direction.MINIMIZE)
    assert sorted(range(7), key=lambda index: -standing[index])[:5] == [5, 0, 6, 2, 1]
    assert standing[3] == standing[4] == standing.min()


def test_trials_that_say_nothing_of_the_objective_are_left_out() -> None:
    values = SPACE.defaults()
    ended = [
        trial(0, 1.0, parameters=values),
        trial(1, 1.0, TrialState.CANCELLED, parameters=values),
        trial(2, None, TrialState.FAILED, reason=FailureReason.OUT_OF_MEMORY, parameters=values),
        trial(3, 1.0, parameters={"lr": 0.1}),
        trial(4, 1.0, parameters={**values, "lr": 0.5}),  # beyond its bounds, as a user had it tried
    ]
    assert [one.number for one in compared(ended, SPACE)] == [0, 4]
    found = insights(ended)
    assert (found.num_completed, found.num_left_out) == (2, 3)


def test_early_values_that_tell_the_last_ones_correlate_and_those_that_do_not_do_not() -> None:
    trials = [trial(number, float(number)) for number in range(20)]
    telling = {one.id: [(10, 3.0), (20, one.number + 1.0), (100, float(one.number))] for one in trials}
    found = early_late(trials, telling)
    assert found is not None
    assert found.correlation == pytest.approx(1)
    assert (found.num_trials, found.share) == (20, 0.2)
    mixed = {one.id: [(20, float(one.number * 7 % 20)), (100, float(one.number))] for one in trials}
    found = early_late(trials, mixed)
    assert found is not None
    assert found.low < found.correlation < found.high
    assert abs(found.correlation) < 0.5
    only_at_the_end = {one.id: [(100, float(one.number))] for one in trials}
    assert early_late(trials, only_at_the_end) is None
