"""The confirmation of a job: its table, its chart, and both as a person meets them."""

from __future__ import annotations

import dataclasses
import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from service.dashboard.job.confirmation import ConfirmationView, confirmation_of, members_of
from service.dashboard.scale import AxisScale
from service.evidence.branches import BranchBest, Branches
from service.evidence.types import Evidence
from service.store.repositories import TrialColumnsRepository
from service.store.session import Database
from tests.service.dashboard.conftest import open_page
from tests.support.service.confirmed import recommendation_of
from tests.support.service.pages.accessible import LOW_CONTRAST
from tests.support.service.stories.jobs import Story, confirmed_story

SIDES: dict[int, list[float | None]] = {0: [0.31, 0.33, 0.32], 1: [0.29, 0.30, 0.28], 2: [0.41, 0.42, 0.40]}


def _confirmation(values: dict[int, list[float | None]], **options: int) -> ConfirmationView:
    found = confirmation_of(recommendation_of(values, **options).evidence)  # type: ignore[arg-type]
    assert found is not None
    return found


def _evidence(**changes: object) -> Evidence:
    return dataclasses.replace(recommendation_of(SIDES, top_k=2).evidence, **changes)  # type: ignore[arg-type]


def test_the_table_has_a_row_for_each_config_and_a_gap_where_none_was_trained() -> None:
    table = _confirmation({0: [0.31], 1: [0.29, 0.30, 0.28], 2: [0.41, 0.42, 0.40]}, top_k=2).table
    assert (table.seeds, table.choosing) == ([1, 2, 3], [1])
    assert [(row.number, row.is_best, row.is_baseline) for row in table.rows] == [
        (1, True, False),
        (0, False, False),
        (2, False, True),
    ]
    assert [[result and result.value for result in row.results] for row in table.rows] == [
        [0.29, 0.30, 0.28],
        [0.31, None, None],
        [0.41, 0.42, 0.40],
    ]
    assert table.has_gaps
    assert table.numbers == {0, 1, 2, *range(10, 17)}
    assert not table.has_chances
    assert confirmation_of(None) is None
    assert confirmation_of(_evidence(confirmation=None)) is None


def test_the_probability_of_being_best_is_told_in_words() -> None:
    evidence = _evidence()
    assert evidence.confirmation is not None
    candidates = [
        dataclasses.replace(config, probability_best=probability)
        for config, probability in zip(evidence.confirmation.candidates, (0.68, None), strict=True)
    ]
    changed = dataclasses.replace(evidence.confirmation, candidates=candidates)
    found = confirmation_of(dataclasses.replace(evidence, confirmation=changed))
    assert found is not None
    assert found.table.has_chances
    assert [row.chance_best for row in found.table.rows] == ["about 70%", None, None]


def test_what_a_seed_was_for_and_what_the_search_had_found_are_told_apart() -> None:
    first, second, baseline = _confirmation(SIDES, top_k=2).lanes
    assert [mark.role for mark in first.lane.marks] == ["found", "chose", "compares", "compares"]
    assert [mark.role for mark in second.lane.marks] == ["found", "chose", "aside", "aside"]
    assert [mark.y for mark in first.lane.marks][1:] == [mark.y for mark in baseline.lane.marks][1:]
    assert first.lane.marks[0].x < first.lane.marks[3].x < first.lane.marks[1].x < baseline.lane.marks[0].x
    assert first.lane.mean is not None
    assert second.lane.mean is None
    assert first.lane.words == (
        "found by the search: 0.2500; seed 1: 0.2900 (chose); seed 2: 0.3000; seed 3: 0.2800; mean 0.2900 ± 0.014; a "
        "further seed would lie between 0.06992 and 0.5101"
    )


def test_a_seed_that_failed_is_named_and_has_no_mark() -> None:
    lanes = {one.row.number: one for one in _confirmation({0: [0.31, 0.32], 1: [0.29, None], 2: [0.4, 0.41]}).lanes}
    assert lanes[1].failures == ["seed 2: failed (diverged)"]
    assert [mark.role for mark in lanes[1].lane.marks] == ["found", "aside"]
    assert lanes[0].failures == []


def test_differences_are_drawn_around_zero_where_whole_trials_are_compared() -> None:
    differences = _confirmation(SIDES, top_k=2).differences
    assert differences is not None
    assert differences.zero < min(mark.x for mark in differences.lane.marks)
    assert differences.level.low < differences.zero < differences.level.high
    assert [mark.words for mark in differences.lane.marks] == ["seed 2: +29.3%", "seed 3: +29.3%"]
    assert "0%" in [tick.label for tick in differences.ticks]
    evidence = _evidence()
    earlier = dataclasses.replace(evidence.comparisons[0], value=0.35)  # at equal spending, not in the end
    for changed in (
        dataclasses.replace(evidence, comparisons=[earlier]),
        dataclasses.replace(evidence, improvement=None),  # a target was missed: there are no shares
    ):
        found = confirmation_of(changed)
        assert found is not None
        assert found.differences is None


@pytest.mark.parametrize("values", [[0.5], [-3.0, -3.0], [0.0], [1e-9, 1e9], [-1.0, 5.0], [0.0765, 0.0767]])
def test_every_value_lies_within_the_axis_and_ticks_are_few(values: list[float]) -> None:
    scale = AxisScale.of(values, [min(values) - 100.0])
    assert all(0.0 <= scale.place(value) <= 100.0 for value in values)
    ticks = scale.ticks(lambda value: f"{value:g}")
    assert 1 <= len(ticks) <= 12
    assert all(0.0 <= tick.x <= 100.0 for tick in ticks)


def test_an_interval_far_wider_than_the_values_leaves_them_their_room() -> None:
    scale = AxisScale.of([1.0, 2.0], [-50.0, 3.5])
    assert (scale.low, scale.high) == (0.0, 3.0)
    assert scale.place(-50.0) < 5.0
    assert AxisScale.of([0.001, 1.0], [-5.0]).place(-5.0) == 0.0


@pytest.mark.slow
def test_a_member_of_the_family_is_told_of_each_config(sqlite_database: Database) -> None:
    story = confirmed_story(sqlite_database, now=datetime.now(UTC) - timedelta(hours=2))
    with sqlite_database.reading() as session:
        trials = list(TrialColumnsRepository(session).listed(story.job_id, {8, 13}).values())
    branches = Branches("basis", "eigen", [BranchBest("eigen", 4, 8, 0.1, 0.7)])
    named = [dataclasses.replace(trial, parameters={"basis": f"basis of {trial.number}"}) for trial in trials]
    assert members_of(_evidence(branches=branches), named) == {8: "basis of 8", 13: "basis of 13"}
    assert members_of(_evidence(branches=branches), trials) == {}
    assert members_of(_evidence(), named) == {}
    assert members_of(None, named) == {}


def test_the_chart_shows_the_luck_of_the_search_and_leads_to_its_table(page: Page, confirmed: Story) -> None:
    open_page(page, confirmed)
    section = page.get_by_role("region", name="Confirmation", exact=True)
    expect(section.locator(".row.best")).to_contain_text("#8 Shampoo")
    expect(section.locator(".row.best")).to_contain_text("found by search: 0.07330, was luck")
    expect(section.locator(".row.best")).to_contain_text("best of its side: ")
    expect(
        section.get_by_role("img", name="Config of trial 8: found by the search: 0.07330; seed 1: 0.07710 (chose)")
    ).to_be_visible()
    expect(section.get_by_role("img", name="Improvement over the baseline")).to_be_visible()
    first = section.locator(".row.best .mark")
    expect(first).to_have_count(5)
    expect(first.nth(0)).to_have_attribute("data-role", "found")
    section.get_by_text("The same as a table").click()
    table = section.get_by_role("region", name="Trained again with new seeds")
    expect(table.get_by_role("row")).to_have_count(4)
    table.get_by_role("link", name="0.07650").click()
    expect(page).to_have_url(re.compile(f"/jobs/{confirmed.job_id}/trials/37$"))
    for width in (390, 2560):
        page.set_viewport_size({"width": width, "height": 900})
        open_page(page, confirmed)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        marks = [mark.bounding_box() for mark in section.locator(".row.best .mark > circle").all()]
        assert all(box is not None and 0 <= box["x"] <= width for box in marks)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(LOW_CONTRAST) == []
    page.get_by_role("link", name="Other formats, and its history").click()
    expect(page.get_by_role("region", name="History")).to_be_visible()
    expect(page.get_by_role("region", name="Confirmation", exact=True)).to_be_visible()
