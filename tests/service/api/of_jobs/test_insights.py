"""Insights of a job over HTTP and by both clients, and the charts of it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.api import examples
from service.api.figures.insights import (
    COMPLETED,
    DIVERGED,
    MAX_TRIALS,
    PRUNED,
    InsightTrial,
    map_figure,
    slice_figure,
)
from service.api.figures.positions import Positions
from service.api.schemas.insights import InsightsRead
from service.client import ApiError, Client
from service.domain import Direction, FailureReason, TrialState
from service.evidence.insights import ParameterInsight, ParameterMap
from service.store.session import Database
from service.use_cases.run import store_insights
from tests.service.evidence.test_insights import FAMILY, INSIGHTS, LR
from tests.support.service.live import running
from tests.support.service.scenarios import NOW, claimed_job, store_trials

TRIALS = [
    InsightTrial(0, COMPLETED, {"lr": 0.003, "grafting": "adam"}, 0.3),
    InsightTrial(1, PRUNED, {"lr": 0.0002, "grafting": None}, 0.9),
    InsightTrial(2, DIVERGED, {"lr": 0.08, "grafting": "adam"}, 4e9),
    InsightTrial(3, COMPLETED, {"grafting": "adam"}, 0.2),
]


def test_insights_are_read_over_http_once_there_are_any(database: Database) -> None:
    lease = claimed_job(database)
    with running(database) as url, Client(url) as client:
        with pytest.raises(ApiError) as refused:
            client.insights(lease.job_id)
        assert refused.value.status == 404
        with database.writing() as session:
            store_insights(session, lease, INSIGHTS, now=NOW)
        found = client.insights(lease.job_id)
    assert (found.job_id, found.computed_at, found.sides) == (lease.job_id, NOW, INSIGHTS.sides)


def test_the_example_holds() -> None:
    def assert_within(example: Any, whole: Any) -> None:
        """All that the example has, the whole has; what an example leaves out is none."""
        if isinstance(example, dict):
            for name, value in example.items():
                assert_within(value, whole[name])
        elif isinstance(example, list):
            for one, other in zip(example, whole, strict=True):
                assert_within(one, other)
        else:
            assert example == whole

    assert_within(examples.INSIGHTS, InsightsRead.model_validate(examples.INSIGHTS).model_dump(mode="json"))


def test_charts_of_a_side_are_given_and_what_is_no_parameter_is_refused(
    sqlite_http: httpx.Client, sqlite_database: Database
) -> None:
    lease = claimed_job(sqlite_database)
    plots = f"/v1/jobs/{lease.job_id}/plots"
    assert sqlite_http.get(f"{plots}/slice", params={"parameter": "lr"}).status_code == 404
    with sqlite_database.writing() as session:
        store_insights(session, lease, INSIGHTS, now=NOW)
    diverged = {"state": TrialState.FAILED, "reason": FailureReason.DIVERGED}
    lost = {"state": TrialState.FAILED, "reason": FailureReason.LOST}
    store_trials(
        sqlite_database,
        lease.job_id,
        [
            {"parameters": {"lr": lr, "grafting": "adam"}, "value": 0.3, **ending}
            for lr, ending in ((0.003, {}), (0.05, diverged), (0.004, lost))
        ],
    )
    drawn = sqlite_http.get(f"{plots}/slice", params={"parameter": "lr"}).raise_for_status().json()
    assert {trace["name"]: trace["customdata"] for trace in drawn["data"]} == {"completed": [0], "diverged": [1]}
    drawn = sqlite_http.get(f"{plots}/map", params={"x": "grafting", "y": "lr"}).raise_for_status().json()
    assert [trace["type"] for trace in drawn["data"]] == ["heatmap", "scatter", "scatter"]
    for path, params, field in (
        ("slice", {"parameter": "lrr"}, "parameter"),
        ("slice", {"parameter": "lr", "side": "adamw"}, "side"),
        ("map", {"x": "lr", "y": "lr"}, "y"),
    ):
        answer = sqlite_http.get(f"{plots}/{path}", params=params)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)


def test_a_slice_has_the_diverged_at_the_upper_edge_and_the_good_range_shaded() -> None:
    figure = slice_figure(TRIALS, LR, side="search", metric="loss <b>", direction=Direction.MINIMIZE)
    completed, pruned, diverged = figure["data"]
    assert (completed["customdata"], completed["y"]) == ([0], [0.3])
    assert (pruned["name"], pruned["y"]) == ("pruned (value when stopped)", [0.9])
    assert (diverged["yaxis"], diverged["customdata"]) == ("y2", [2])
    good, bad = figure["layout"]["shapes"]
    assert 0 < good["x0"] < completed["x"][0] < good["x1"] < bad["x0"] < bad["x1"] == 1
    assert figure["layout"]["yaxis"]["type"] == "linear"  # whatever the diverged one had
    assert "&lt;b&gt;" in figure["layout"]["yaxis"]["title"]["text"]
    table = figure["layout"]["meta"]["table"]
    assert table["columns"] == ["lr", "trials", "diverged", "best", "middle"]
    assert table["rows"] == [
        ["0.0002", "1", "0", "–", "–"],
        ["0.003", "1", "0", "0.3000", "0.3000"],
        ["0.08", "1", "1", "–", "–"],
    ]


def test_of_many_trials_a_part_is_drawn_and_all_are_in_the_table() -> None:
    many = [
        InsightTrial(number, COMPLETED, {"lr": 0.001 + number * 1e-6}, 0.5 if number == 7 else 1.0)
        for number in range(3 * MAX_TRIALS)
    ]
    figure = slice_figure(many, LR, side="search", metric="loss", direction=Direction.MINIMIZE)
    assert (figure["layout"]["meta"]["shown"], figure["layout"]["meta"]["of"]) == (MAX_TRIALS + 1, 3 * MAX_TRIALS)
    assert len(figure["data"][0]["x"]) == MAX_TRIALS + 1
    assert 7 in figure["data"][0]["customdata"]  # the best
    assert sum(int(row[1]) for row in figure["layout"]["meta"]["table"]["rows"]) == 3 * MAX_TRIALS


def test_a_map_lies_on_the_ground_that_was_computed_whichever_way_it_is_turned() -> None:
    ground = ParameterMap(0, 1, [1e-4, 1e-2], [None, "adam"], [[0.1, None], [0.9, 0.2]])
    upright = map_figure(TRIALS, LR, FAMILY, ground, side="search", direction=Direction.MINIMIZE)
    turned = map_figure(TRIALS, FAMILY, LR, ground.along(1, 0), side="search", direction=Direction.MINIMIZE)
    assert upright["data"][0]["z"] == [[10.0, None], [90.0, 20.0]]
    assert turned["data"][0]["z"] == [[10.0, 90.0], [None, 20.0]]
    assert upright["data"][0]["y"] == [0.25, 0.75]  # the middles of two choices, which trials lie around
    assert upright["layout"]["meta"]["table"]["rows"][0] == ["0.0001", "adam", "90%"]
    assert [trace["name"] for trace in upright["data"][1:]] == ["completed", "pruned", "diverged"]
    bare = map_figure(TRIALS, LR, FAMILY, None, side="search", direction=Direction.MINIMIZE)
    assert [trace["type"] for trace in bare["data"]] == ["scatter"] * 3


@pytest.mark.parametrize(
    ("parameter", "ticks"),
    [
        (LR, ["0.0001", "0.0005", "0.002", "0.01", "0.05"]),
        (
            ParameterInsight("betas[1]", "float", 9, "reverse_log", 0.9, 0.999),
            ["0.9", "0.98", "0.995", "0.999"],
        ),
        (ParameterInsight("decay", "float", 9, "linear", 0.0, 1.0), ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (ParameterInsight("k", "integer", 9, "linear", 1, 4), ["1", "2", "3", "4"]),
        (ParameterInsight("one", "float", 9, "linear", 2.0, 2.0), ["2", "2"]),
        (FAMILY, ["None", "adam"]),
    ],
)
def test_ticks_stand_at_round_values_of_the_scale(parameter: ParameterInsight, ticks: list[str]) -> None:
    axis = Positions(parameter).axis()
    assert axis["ticktext"] == ticks
    assert axis["tickvals"] == sorted(axis["tickvals"])
    assert all(0 <= place <= 1 for place in axis["tickvals"])


def test_trials_of_one_choice_are_spread_within_their_stretch() -> None:
    positions = Positions(FAMILY)
    places = {positions.of("adam", of_trial=number) for number in range(50)}
    assert len(places) == 50
    assert all(place is not None and 0.5 < place < 1 for place in places)
    assert positions.of("none of these") is None
    assert Positions(LR).of("a text") is None
