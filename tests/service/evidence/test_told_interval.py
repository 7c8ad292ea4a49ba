"""How far an interval is told: of a metric that is never negative, no further than 0."""

from __future__ import annotations

import dataclasses

import pytest

from service.dashboard.job.confirmation import confirmation_of
from service.dashboard.recommendations.view import Listed
from service.domain import Direction
from service.evidence.in_words.told_interval import told_interval
from service.evidence.in_words.words import answer_of
from service.evidence.reproduction import Repeated, band_of, outcome_lines, repeats_of, reproduction
from service.store.models import RecommendationRow
from tests.support.service.confirmed import recommendation_of

NOISY = [0.05, 0.75, 0.10]
RIVALS = [0.60, 0.80, 0.70]


def test_no_more_is_told_to_be_gained_of_a_loss_than_there_is() -> None:
    evidence = recommendation_of({0: NOISY, 2: RIVALS}).evidence
    result = evidence.confirmation
    assert result is not None
    assert result.improvement is not None
    assert result.improvement[1] > 1.0
    evidence = dataclasses.replace(evidence, search_interval=(-0.4, 1.7))
    answer = answer_of(evidence)
    assert answer is not None
    assert " and +100.0% (95% interval)." in answer.detail
    assert "With the luck of a search of this size, which that does not cover, it lies between -40.0% and +100.0%." in (
        answer.detail
    )
    listed = Listed(RecommendationRow(), evidence, is_superseded=False, job_name="")
    assert listed.interval == (result.improvement_low, 1.0)


@pytest.mark.parametrize(
    ("ours", "theirs", "direction"),
    [
        (NOISY, RIVALS, Direction.MAXIMIZE),
        ([-0.01, *NOISY[1:]], RIVALS, Direction.MINIMIZE),
        ([0.0, *NOISY[1:]], RIVALS, Direction.MINIMIZE),
        (NOISY, [-0.01, *RIVALS[1:]], Direction.MINIMIZE),
    ],
)
def test_of_an_accuracy_and_a_metric_of_either_sign_all_of_the_interval_is_told(
    ours: list[float], theirs: list[float], direction: Direction
) -> None:
    evidence = recommendation_of({0: ours, 2: theirs}, direction=direction).evidence
    assert told_interval(evidence, (-1.5, 1.5)) == (-1.5, 1.5)


def test_no_further_seed_is_told_to_fall_below_0_where_none_has() -> None:
    evidence = recommendation_of({0: NOISY, 2: RIVALS}).evidence
    assert evidence.confirmation is not None
    further_low = evidence.confirmation.candidates[0].further_low
    assert further_low is not None
    assert further_low < 0.0
    assert band_of(evidence).low == 0.0
    outcome = reproduction(evidence, [Repeated(one, one.value) for one in repeats_of(evidence)])
    assert "in the band 0.000 to " in outcome_lines(outcome)[-1]
    view = confirmation_of(evidence)
    assert view is not None
    assert "a further seed would lie between 0.000 and " in view.lanes[0].lane.words
    assert band_of(recommendation_of({0: [-0.01, *NOISY[1:]], 2: RIVALS}).evidence).low < 0.0
