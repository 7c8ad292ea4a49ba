"""Data of the charts of a job's page: chosen, rounded and thinned, whole and as what has come since."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.dashboard.charts.best import changed_rows, finished_of, side_columns
from service.dashboard.charts.columns import MAX_POINTS, MAX_POINTS_TOGETHER, rounded, thinned
from service.dashboard.charts.curves import chosen, curve_columns, rungs_of
from service.dashboard.charts.page import MAX_EVENTS
from service.dashboard.charts.sides import groups_of, sides_of
from service.dashboard.charts.timeline import (
    StretchEnding,
    forks_of,
    idle_share,
    lanes_of,
    places_told,
    stretches_of,
    summary,
    timeline_columns,
)
from service.domain import Direction, FailureReason, Phase, TrialState
from service.places import NodePlace
from service.server.app import create_app
from service.settings import Settings
from service.store.models import Event
from service.store.repositories.of_trials.chart_rows import ChartConfig, ChartTrial, LaneTrial, Turn
from service.store.repositories.of_trials.measurements import CurvePoint
from service.store.session import Database
from service.use_cases.run import record_places
from service.use_cases.steer_trials import retry_trial
from tests.support.service.scenarios import begin_trial, claimed_job, fork_trial, measure_curve
from tests.support.service.stories.jobs import Story

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def _trial(number: int, **fields: Any) -> ChartTrial:
    defaults = {
        "id": f"trial_{number}",
        "number": number,
        "phase": Phase.SEARCH,
        "state": TrialState.COMPLETED,
        "reason": None,
        "confirms": None,
        "step": 100,
        "value": float(number),
        "finished_at": NOW + timedelta(seconds=number),
    }
    return ChartTrial(**{**defaults, **fields})


def _points(values: Sequence[float | None]) -> list[CurvePoint]:
    return [CurvePoint(10 * n, n / 3, 0.1 * n, value) for n, value in enumerate(values, start=1)]


def test_numbers_are_as_long_as_a_screen_can_show() -> None:
    assert [rounded(value) for value in (0.123456789, 2.0, 1234567.0, None, float("nan"))] == [
        0.12346,
        2,
        1234600,
        None,
        None,
    ]


def test_a_long_curve_keeps_its_peak() -> None:
    points = _points([1.0] * 500 + [9.0] + [1.0] * 500)
    drawn = thinned(points)
    assert len(drawn) <= MAX_POINTS
    assert max(point.value or 0.0 for point in drawn) == 9.0
    assert [drawn[0].step, drawn[-1].step] == [10, 10010]


def test_many_long_curves_have_few_points_each_and_keep_their_peaks() -> None:
    trials = [_trial(number) for number in range(100)]
    points = {trial.id: _points([1.0] * 500 + [9.0 + trial.number] + [1.0] * 500) for trial in trials}
    configs, sides = dict.fromkeys(range(100), ChartConfig("shampoo", 32, {})), dict.fromkeys(range(100), "search")
    columns = curve_columns(trials, points, configs, sides, axis="step", num_ranks=1)
    assert sum(map(len, columns["y"])) <= MAX_POINTS_TOGETHER
    assert [max(y) for y in columns["y"]] == [9 + trial.number for trial in trials]


def test_of_many_curves_the_best_half_is_drawn_and_those_that_train() -> None:
    trials = [_trial(number) for number in range(1000)] + [
        _trial(1000, state=TrialState.RUNNING, value=5000.0),
        _trial(1001, step=0),
    ]
    choice = chosen(trials, Direction.MINIMIZE)
    numbers = [trial.number for trial in choice.drawn]
    assert (choice.num_measured, choice.num_best) == (1001, 50)
    assert set(range(50)) < set(numbers)
    assert 1000 in numbers
    assert len(numbers) in (100, 101)


def test_rungs_are_where_trials_were_stopped_again_and_again() -> None:
    stopped = [_trial(number, state=TrialState.PRUNED, step=(25, 50)[number % 2]) for number in range(10)]
    odd = [_trial(10, state=TrialState.PRUNED, step=33), _trial(11)]
    assert rungs_of([*stopped, *odd]) == [25, 50]
    assert rungs_of([_trial(0)]) == []


def test_curves_share_their_steps_and_those_that_differ_have_their_own() -> None:
    trials = [_trial(0), _trial(1), _trial(2)]
    points = {"trial_0": _points([3.0, 2.0, 1.0]), "trial_1": _points([4.0]), "trial_2": _points([5.0, None])[1:]}
    config = ChartConfig("shampoo", 32, {"lr": 0.123456, "name": "x" * 100})
    columns = curve_columns(
        trials,
        points,
        dict.fromkeys(range(3), config),
        dict.fromkeys(range(3), "search"),
        axis="device_seconds",
        num_ranks=2,
    )
    assert columns["grid"] == [10, 20, 30]
    assert columns["steps"] == [None, None, [20]]
    assert columns["x"] == [[0.2, 0.4, 0.6], [0.2], [0.4]]
    assert columns["y"] == [[3, 2, 1], [4], [None]]
    assert columns["parameters"] == ["lr", "name"]
    assert columns["values"][0] == [0.123, "x" * 60]


def test_the_confirmation_is_drawn_by_the_side_that_it_repeats() -> None:
    trials = [
        _trial(0),
        _trial(1, phase=Phase.BASELINE),
        _trial(2, phase=Phase.CONFIRMATION, confirms=0),
        _trial(3, phase=Phase.CONFIRMATION, confirms=1),
    ]
    assert sides_of(trials, {}, ["adamw"]) == {0: "search", 1: "adamw", 2: "search", 3: "adamw"}
    groups = {group.key: group for group in groups_of({"search": "Shampoo", "adamw": "AdamW", "confirmation": "-"})}
    assert groups["confirmation:adamw"].label == "AdamW, confirmation"
    assert groups["confirmation:adamw"].colour == groups["adamw"].colour != groups["search"].colour
    assert groups["confirmation:adamw"].dash != groups["adamw"].dash


def test_the_line_of_the_best_has_a_point_where_it_changed() -> None:
    trials = [
        _trial(0, value=3.0),
        _trial(1, value=4.0),
        _trial(2, state=TrialState.PRUNED, value=0.1),
        _trial(3, value=2.0),
        _trial(4, state=TrialState.RUNNING, finished_at=None),
    ]
    finished = finished_of(trials, dict.fromkeys(range(5), "search"), started_at=NOW)
    columns = side_columns(finished, Direction.MINIMIZE)
    assert columns["count"] == 4
    assert columns["line"] == {"n": [1, 4], "seconds": [0, 3], "y": [3, 2], "number": [0, 3]}
    assert columns["dots"]["number"] == [0, 1, 3]


def test_the_best_value_is_not_rounded_twice() -> None:
    finished = finished_of([_trial(0, value=0.126853445)], {0: "search"}, started_at=NOW)
    assert side_columns(finished, Direction.MINIMIZE)["line"]["y"] == [0.126853445]
    assert changed_rows(finished) == [[0, "search", 0, 0.126853445]]


def test_of_many_dots_the_best_and_the_worst_of_stretches_stay() -> None:
    trials = [_trial(number, value=100.0 - (number == 1500)) for number in range(2000)]
    dots = side_columns(finished_of(trials, dict.fromkeys(range(2000), "s"), started_at=NOW), Direction.MINIMIZE)[
        "dots"
    ]
    assert len(dots["n"]) <= 300
    assert 1500 in dots["number"]


def _lane(number: int, **fields: Any) -> LaneTrial:
    defaults = {
        "number": number,
        "phase": Phase.SEARCH,
        "state": TrialState.COMPLETED,
        "reason": None,
        "runs": 1,
        "losses": 0,
        "memory_failures": 0,
        "forked_from": None,
        "forked_at_step": None,
        "step": 100,
        "value": 1.0,
        "started_at": NOW,
        "finished_at": NOW + timedelta(seconds=10),
        "device_name": None,
        "places": None,
    }
    return LaneTrial(**{**defaults, **fields})


def _turns(number: int, *changes: tuple[TrialState, float]) -> list[Turn]:
    return [Turn(number, state, NOW + timedelta(seconds=after)) for state, after in changes]


def test_a_trial_takes_the_first_free_lane_and_leaves_it_while_it_is_paused() -> None:
    running, queued, completed = TrialState.RUNNING, TrialState.QUEUED, TrialState.COMPLETED
    failed = {"state": TrialState.FAILED, "reason": FailureReason.DIVERGED, "losses": 1}
    trials = [_lane(0, runs=2), _lane(1, **failed), _lane(2, state=TrialState.RUNNING, finished_at=None)]
    turns = [
        *_turns(0, (queued, 0), (running, 0), (queued, 4), (running, 8), (running, 9), (completed, 10)),
        *_turns(1, (running, 1), (queued, 3), (running, 3), (TrialState.FAILED, 6)),
        *_turns(2, (running, 5)),
    ]
    stretches = stretches_of(trials, turns, now=NOW + timedelta(seconds=12))
    found = [
        (each.number, (each.began - NOW).seconds, (each.ended - NOW).seconds, each.ending.value, lane)
        for each, lane in zip(stretches, lanes_of(stretches), strict=True)
    ]
    assert found == [
        (0, 0, 4, "paused", 0),
        (1, 1, 3, "paused", 1),
        (1, 3, 6, "diverged", 1),
        (2, 5, 12, "running", 0),
        (0, 8, 10, "completed", 1),
    ]
    assert idle_share(stretches, 2) == pytest.approx(1 - 18 / 24)
    assert summary(trials, stretches, 2)[:3] == [
        "Up to 2 trials ran at once; from the first one's start on, nothing ran for 25% of the time.",
        "1 trial paused on the way.",
        "Trials were taken up again once after a loss.",
    ]


def test_a_trial_whose_events_are_gone_is_one_stretch() -> None:
    [stretch] = stretches_of([_lane(0)], [], now=NOW)
    assert (stretch.began, stretch.ended, stretch.ending) == (NOW, NOW + timedelta(seconds=10), StretchEnding.COMPLETED)
    assert summary([], [], 0) == []


def test_a_stretch_has_the_place_of_its_run() -> None:
    running, queued, completed = TrialState.RUNNING, TrialState.QUEUED, TrialState.COMPLETED
    places = {"1": [{"node": "a", "gpus": ["0"]}], "3": [{"node": "b", "gpus": []}]}
    lane = _lane(0, runs=3, places=places)
    turns = _turns(0, (running, 0), (queued, 2), (running, 3), (queued, 4), (running, 8), (completed, 10))
    stretches = stretches_of([lane, _lane(1)], turns, now=NOW)
    assert [stretch.place for stretch in stretches] == ["a, GPU 0", None, None, "b, CPU"]
    columns = timeline_columns(stretches, lanes_of(stretches), origin=NOW)
    assert (columns["place"], places_told(stretches)) == ([0, None, None, 1], ["a, GPU 0", "b, CPU"])
    assert "the table" in summary([lane], stretches, 2)[-1]
    [whole] = stretches_of([lane], [], now=NOW)
    assert whole.place == "b, CPU", "of the last run, where what happened is not stored any more"


def test_forks_stand_below_the_trial_that_they_began_from() -> None:
    trials = [
        _lane(0),
        _lane(1),
        _lane(2, forked_from=0, forked_at_step=60),
        _lane(3, forked_from=2, forked_at_step=80, step=0),
        _lane(4, forked_from=0, forked_at_step=20),
    ]
    forks = forks_of(trials)
    assert [(fork.number, fork.parent_row, fork.first_step, fork.last_step) for fork in forks] == [
        (0, None, 0, 100),
        (4, 0, 20, 100),
        (2, 0, 60, 100),
        (3, 2, 80, 80),
        (1, None, 0, 100),
    ]
    assert forks_of(trials[:2]) == []


@pytest.fixture
def client(sqlite_database: Database) -> Iterator[TestClient]:
    app = create_app(Settings(data_dir=Path("unused")), sqlite_database)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def _read(client: TestClient, job_id: str, kind: str, **query: Any) -> dict[str, Any]:
    answer = client.get(f"/jobs/{job_id}/charts/{kind}", params=query)
    assert answer.status_code == HTTPStatus.OK, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_page_asks_for_what_has_come_since(client: TestClient, sqlite_database: Database) -> None:
    story = Story(sqlite_database, now=NOW)
    for number in range(4):
        story.run(number)
    story.begin(4)
    story.measure(4, until=50)
    known = _read(client, story.job_id, "curves")
    assert known["whole"] is True
    assert known["metrics"] == ["train_loss", "validation_loss", "validation_accuracy"]
    assert known["axes"] == ["step", "epoch", "seconds", "device_seconds"]
    assert known["curves"]["number"] == [0, 1, 2, 3, 4]
    assert known["curves"]["grid"] == list(range(10, 201, 10))
    best = _read(client, story.job_id, "best")
    assert (best["finished"], sorted(best["sides"])) == (4, ["adamw", "search"])

    story.measure(4, until=80)
    story.run(5)
    query = {"since": known["event"], "have": "0,1,2,3,4", "x": "step"}
    further = _read(client, story.job_id, "curves", **query)
    assert further["whole"] is False
    assert further["curves"]["number"] == [4, 5]
    assert further["from"] == [10, 0]  # the story tells all of its steps again
    assert _read(client, story.job_id, "best", since=best["event"], finished=4)["finished"][0][:2] == [5, "search"]
    nothing = _read(client, story.job_id, "curves", **{**query, "since": further["event"]})
    assert nothing["curves"]["number"] == []

    story.begin(6)
    with sqlite_database.writing() as session:
        session.add_all(
            Event(job_id=story.job_id, kind="trial.state", data={"number": 6, "state": "running"}, created_at=NOW)
            for _ in range(MAX_EVENTS)
        )
    assert _read(client, story.job_id, "curves", **query)["whole"] is True


def test_a_trial_taken_up_again_takes_back_what_was_drawn(client: TestClient, sqlite_database: Database) -> None:
    story = Story(sqlite_database, now=NOW)
    for number in (0, 6):
        story.run(number)
    best = _read(client, story.job_id, "best")
    assert best["sides"]["search"]["count"] == 2
    with sqlite_database.writing() as session:
        retry_trial(session, story.job_id, 6, now=NOW)
    again = _read(client, story.job_id, "best", since=best["event"], finished=2)
    assert (again["whole"], again["finished"]) == (True, 1)


def test_what_a_browser_has_of_a_job_at_rest_is_not_sent_again(client: TestClient, sqlite_database: Database) -> None:
    story = Story(sqlite_database, now=NOW)
    story.run(0)
    story.finish()
    for kind in ("curves", "best", "timeline"):
        path = f"/jobs/{story.job_id}/charts/{kind}"
        first = client.get(path)
        for known in (first.headers["ETag"], "*"):
            again = client.get(path, headers={"If-None-Match": known})
            assert (again.status_code, again.content) == (HTTPStatus.NOT_MODIFIED, b"")


def test_the_parts_of_a_page_hold_neither_charts_nor_dialogs(client: TestClient, sqlite_database: Database) -> None:
    story = Story(sqlite_database, now=NOW)
    story.run(0)
    story.finish()
    whole, parts = (client.get(f"/jobs/{story.job_id}{query}") for query in ("", "?parts=true"))
    for content in ('id="answer"', 'id="budget"', 'id="moment"'):
        assert content in whole.text
        assert content in parts.text
    for content in ('id="learning-curves"', "<dialog", "<script", "Job specification"):
        assert content in whole.text
        assert content not in parts.text
    known = {"If-None-Match": parts.headers["ETag"]}
    assert client.get(f"/jobs/{story.job_id}?parts=true", headers=known).status_code == HTTPStatus.NOT_MODIFIED


def test_any_metric_is_drawn_over_any_axis(client: TestClient, sqlite_database: Database) -> None:
    story = Story(sqlite_database, now=NOW)
    story.run(0)
    found = _read(client, story.job_id, "curves", metric="train_loss", x="epoch")
    assert (found["metric"], found["over"]) == ("train_loss", "epoch")
    assert found["curves"]["x"][0][-1] == rounded(200 / 11)
    assert found["curves"]["y"][0] != _read(client, story.job_id, "curves")["curves"]["y"][0]
    missing = _read(client, story.job_id, "curves", metric="nobody measured it")
    assert set(missing["curves"]["y"][0]) == {None}
    for refused in ({"x": "meters"}, {"have": "1,x"}, {"since": -1}):
        answer = client.get(f"/jobs/{story.job_id}/charts/curves", params=refused)
        assert answer.status_code == HTTPStatus.UNPROCESSABLE_ENTITY


def test_an_empty_job_and_an_unknown_one(client: TestClient, sqlite_database: Database) -> None:
    story = Story(sqlite_database, now=NOW)
    assert _read(client, story.job_id, "curves")["curves"]["number"] == []
    assert _read(client, story.job_id, "best")["sides"] == {}
    timeline = _read(client, story.job_id, "timeline")
    assert (timeline["num_lanes"], timeline["told"], timeline["forks"]["number"]) == (0, [], [])
    for kind in ("curves", "best", "timeline"):
        assert client.get(f"/jobs/job_unknown/charts/{kind}").status_code == HTTPStatus.NOT_FOUND


def test_the_timeline_sends_what_may_have_changed(client: TestClient, sqlite_database: Database) -> None:
    lease = claimed_job(sqlite_database)
    begin_trial(sqlite_database, lease, 0)
    measure_curve(sqlite_database, lease, 0, {10: 3.0, 20: 2.0})
    fork_trial(sqlite_database, lease, 1, parent=0, step=20, lr=0.1)
    found = _read(client, lease.job_id, "timeline")
    assert found["stretches"]["number"] == [0, 1]
    assert found["forks"]["parent"] == [None, 0]
    with sqlite_database.writing() as session:
        for number, node in enumerate("ba"):
            record_places(session, lease, number, [NodePlace(node, ("0", "1"))])
    found = _read(client, lease.job_id, "timeline")
    assert (found["places"], found["stretches"]["place"]) == (["a, GPUs 0 and 1", "b, GPUs 0 and 1"], [1, 0])
    later = _read(client, lease.job_id, "timeline", first=1)
    assert (later["stretches"]["number"], later["places"], later["stretches"]["place"]) == (
        [1],
        ["a, GPUs 0 and 1"],
        [0],
    )
