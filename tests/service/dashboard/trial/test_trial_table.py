"""The table of trials and the axes of parallel coordinates as values."""

from __future__ import annotations

from typing import Any

import pytest

from search_spaces import Categorical, Float, Integer, SearchSpace, preset
from service.dashboard.job.parallel import Axis, axes_of, columns_from
from service.dashboard.job.trial_table import NEWEST_FIRST, TableAddress, columns_of, filters_of, held_numbers
from service.domain import Direction, FailureReason, Phase, TrialState
from service.errors import InvalidInput
from service.store.repositories import (
    DrawnTrials,
    FoundNumbers,
    NumberRange,
    ParameterFilter,
    ParameterKey,
    TrialColumnsRepository,
    TrialKey,
    TrialListRepository,
    TrialQuery,
    TrialSorting,
)
from service.store.repositories.of_trials.outputs import OutputRepository
from service.store.session import Database
from tests.support.service.scenarios import claimed_job, store_trials

ALL = TrialQuery()

SPACES = {
    "search": SearchSpace(
        "shampoo",
        (
            Float("lr", 1e-4, 1e-1, scale="log"),
            Categorical("grafting", ("adam", "sgd")),
            Integer("precondition_frequency", 1, 100, scale="log"),
        ),
    ),
    "adamw": SearchSpace("adamw", (Float("lr", 1e-5, 1e-2, scale="log"), Float("weight_decay", 0.0, 1.0))),
}


@pytest.mark.parametrize(
    ("held", "now", "kept"),
    [
        ([], [3, 2, 1], [3, 2, 1]),
        ([1, 2], [1, 2, 3], [1, 2, 3]),
        ([2, 1], [3, 2, 1], [2, 1]),
        ([1, 2], [2, 1], [1, 2]),
        ([1, 2], [1], [1, 2]),
    ],
)
def test_rows_that_are_held_stay_unless_others_only_follow(held: list[int], now: list[int], kept: list[int]) -> None:
    assert held_numbers(held, now) == kept


def test_columns_are_those_of_all_sides_and_may_be_chosen() -> None:
    def columns(direction: Direction = Direction.MINIMIZE, chosen: str | None = None) -> list[tuple[str, bool, str]]:
        found = columns_of(SPACES, metric="loss", direction=direction, chosen=chosen)
        return [(column.title, column.is_shown, str(column.first)) for column in found]

    assert columns() == [
        ("loss", True, "value"),
        ("State", True, "state"),
        ("Phase", True, "phase"),
        ("Step", True, "-step"),
        ("Time", True, "-seconds"),
        ("lr", True, "parameter.lr"),
        ("grafting", True, "parameter.grafting"),
        ("precondition_frequency", True, "parameter.precondition_frequency"),
        ("weight_decay", True, "parameter.weight_decay"),
    ]
    assert columns(Direction.MAXIMIZE)[0] == ("loss", True, "-value")
    chosen = columns(chosen="state,parameter.lr")
    assert [title for title, is_shown, _ in chosen if is_shown] == ["State", "lr"]
    assert not any(is_shown for _, is_shown, _ in columns(chosen=""))
    with pytest.raises(InvalidInput, match=r"did you mean 'parameter\.lr'"):
        columns(chosen="parameter.lrr")


def test_filters_are_told_in_words() -> None:
    query = TrialQuery(
        states=[TrialState.PRUNED],
        phase=Phase.SEARCH,
        value=NumberRange(None, 0.5),
        parameters=[
            ParameterFilter("lr", NumberRange(1e-4, 1e-2)),
            ParameterFilter("momentum", NumberRange(0.9, 0.9)),
            ParameterFilter("epsilon", NumberRange(1e-8, None)),
            ParameterFilter("grafting", "adam"),
        ],
    )
    assert [found.words for found in filters_of(query, metric="loss")] == [
        "pruned",
        "search",
        "loss up to 0.5",
        "lr 0.0001 to 0.01",
        "momentum 0.9",
        "epsilon from 1e-08",
        "grafting adam",
    ]


def test_other_pages_keep_what_was_asked_and_exports_the_filters() -> None:
    address = TableAddress(
        [("state", "pruned"), ("order_by", "value"), ("page", "3"), ("held", "1,2"), ("x", "seconds")]
    )
    assert address.page(2) == "?state=pruned&order_by=value&x=seconds&page=2"
    assert address.page(1) == "?state=pruned&order_by=value&x=seconds"
    assert address.export == "?table=trials&format=csv&state=pruned"


def test_a_name_of_several_parameters_has_one_axis() -> None:
    assert axes_of(SPACES) == [
        Axis("lr", scale="log", low=1e-5, high=1e-1),
        Axis("grafting", choices=("adam", "sgd")),
        Axis("precondition_frequency", scale="log", low=1, high=100),
        Axis("weight_decay", low=0.0, high=1.0),
    ]
    family = {axis.name: axis for axis in axes_of({"search": preset("family")})}
    assert len(family) < len(preset("family").parameters)
    assert all(axis.choices or (axis.low is not None and axis.high is not None) for axis in family.values())
    assert all(axis.low is None or axis.low > 0 for axis in family.values() if axis.scale == "log")


def test_a_page_of_the_table_is_found_in_every_order(database: Database) -> None:
    lease = claimed_job(database)
    cancelled = {"state": TrialState.CANCELLED, "step": 0, "seconds": 0.0}
    trials: list[dict[str, Any]] = [
        {"value": 0.5, "parameters": {"lr": 0.1, "grafting": "sgd"}, "detail": "of /data are not read: test/"},
        {**cancelled, "parameters": {"lr": 1}},
        {"value": 0.25, "parameters": {"lr": 0.003, "grafting": "adam"}, "phase": Phase.BASELINE},
        {"state": TrialState.RUNNING, "value": 2.0, "parameters": {"grafting": None}, "finished_at": None},
    ]
    store_trials(database, lease.job_id, trials)
    with database.reading() as session:
        lists, columns = TrialListRepository(session), TrialColumnsRepository(session)

        def found(order: TrialSorting, query: TrialQuery = ALL, offset: int = 0, limit: int = 9) -> FoundNumbers:
            return lists.numbers(lease.job_id, query, order=order, offset=offset, limit=limit)

        lr, value = TrialSorting(ParameterKey("lr")), TrialSorting(TrialKey.VALUE, is_descending=True)
        assert found(lr) == FoundNumbers([2, 0, 1, 3], 4)
        assert found(value) == FoundNumbers([3, 0, 2, 1], 4)
        assert found(value, limit=2, offset=1) == FoundNumbers([0, 2], 4)
        assert found(value, limit=2, offset=9) == FoundNumbers([], 4)
        assert found(TrialSorting(ParameterKey("grafting"), is_descending=True)) == FoundNumbers([0, 2, 3, 1], 4)
        small = TrialQuery(parameters=[ParameterFilter("lr", NumberRange(None, 0.5))])
        assert found(value, small, limit=1) == FoundNumbers([0], 2)
        for order in (lr, value, TrialSorting(TrialKey.STEP), NEWEST_FIRST):
            for query in (ALL, small):
                numbers = found(order, query).numbers
                for place, number in enumerate(numbers):
                    assert lists.num_before(lease.job_id, query, order=order, number=number) == place
        assert lists.num_before(lease.job_id, small, order=lr, number=1) is None

        drawn = columns.drawn(lease.job_id, first=1)
        assert drawn.numbers == [1, 2, 3]
        assert drawn.states == [TrialState.CANCELLED, TrialState.COMPLETED, TrialState.RUNNING]
        assert drawn.phases == [Phase.SEARCH, Phase.BASELINE, Phase.SEARCH]
        assert drawn.parameters[1:] == [{"lr": 0.003, "grafting": "adam"}, {"grafting": None}]
        assert columns.drawn(lease.job_id, first=4).numbers == []
        assert [columns.num_unfinished_before(lease.job_id, number) for number in (3, 4)] == [0, 1]
        remark = columns.remarked(lease.job_id, among=4)
        assert remark is not None
        assert (remark.number, remark.detail) == (0, "of /data are not read: test/")
        assert columns.remarked(lease.job_id, among=3) is None
        assert sorted(columns.listed(lease.job_id, {0, 3, 7})) == [0, 3]
        assert OutputRepository(session).printing(lease.job_id, {0, 1}) == set()


def test_trials_are_told_as_columns() -> None:
    trials = DrawnTrials(
        numbers=[0, 1, 2],
        phases=[Phase.SEARCH, Phase.BASELINE, Phase.SEARCH],
        states=[TrialState.COMPLETED, TrialState.FAILED, TrialState.COMPLETED],
        reasons=[None, FailureReason.DIVERGED, None],
        values=[0.1, None, 5.0],
        parameters=[{"lr": 0.01, "grafting": "sgd"}, {"lr": 0.1}, {"lr": 0.02, "grafting": None}],
    )
    found = columns_from(trials, axes_of(SPACES)[:2], direction=Direction.MINIMIZE)
    assert found.states == ["completed", "diverged", "completed"]
    assert found.parameters == [[0.01, 0.1, 0.02], ["sgd", None, None]]
    assert found.value_scale == "log"
    assert '"values":[0.1,null,5.0]' in found.json(metric="loss", num_unfinished_before=0)
