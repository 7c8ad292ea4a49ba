"""Words on configs that were trained again with new seeds: of luck, and how sure a comparison is."""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import statistics
from collections.abc import Sequence

import pytest

from service.domain import Direction, Objective
from service.evidence.comparison.confirm import confirm
from service.evidence.formats.snippet import python_snippet
from service.evidence.in_words.words import PLUS_MINUS, SEARCH_VALUES, answer_of, evidence_lines
from service.evidence.recommend import recommend
from service.evidence.recommended import recommendation_from_json
from service.evidence.types import EvidenceStatus
from tests.support.service.caveats import sentences
from tests.support.service.confirmed import FOUND, METRIC, recommendation_of, trained_again

LUCK = "The baseline's config (AdamW, trial 2): its search value 0.4000"


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ([0.60, 0.61, 0.62], [f"{LUCK} was luck: it has 0.6100 ± 0.010 (mean of 3 new seeds), and by these seeds "
          "another would lie between 0.5603 and 0.6597 (95% interval)."]),
        ([0.45, 0.80, 0.95], [f"{LUCK} may have been luck: it has 0.7333 ± 0.26 (mean of 3 new seeds), and 3 seeds "
          "with this spread do not tell."]),
        ([0.50, 0.52], [f"{LUCK} may have been luck: it has 0.5100 ± 0.014 (mean of 2 new seeds), and 2 seeds with "
          "this spread do not tell."]),
        ([0.41, 0.42, 0.43], []),  # ordinary luck
        ([0.4001, 0.4001, 0.4001], []),  # outside an interval without width, but as good as equal
        ([0.30, 0.31, 0.32], []),  # better than when found
    ],
)  # fmt: skip
def test_a_baseline_that_does_worse_over_new_seeds_than_when_found_is_told_beside_the_verdict(
    theirs: Sequence[float], said: list[str]
) -> None:
    recommendation = recommendation_of({0: [0.30, 0.31, 0.32][: len(theirs)], 2: theirs})
    evidence = recommendation.evidence
    assert sentences(evidence.verdict_caveats) == said
    lines = evidence_lines(evidence)
    snippet = python_snippet(recommendation).replace("\n#   ", " ")
    answer = answer_of(evidence)
    assert answer is not None
    verdict = lines.index(f"{answer.headline}. {answer.detail}")
    for sentence in said:
        assert sentence in lines[verdict + 1 : verdict + 3]
        assert f"# {sentence}\n" in snippet
    assert recommendation_from_json(json.loads(json.dumps(recommendation.to_json()))).evidence == evidence


def test_a_recommended_config_that_was_lucky_is_told_too_in_either_direction() -> None:
    evidence = recommendation_of({0: [0.25, 0.26, 0.27]}, direction=Direction.MAXIMIZE).evidence
    (told,) = sentences(evidence.verdict_caveats)
    assert evidence.best.number == 0
    assert told == (
        "The recommended config (Shampoo, trial 0): its search value 0.3000 may have been luck: it has 0.2600 ± 0.010 "
        "(mean of 3 new seeds), and 3 seeds with this spread do not tell."
    )
    (told,) = sentences(recommendation_of({0: [0.2, 0.2, 0.2]}, direction=Direction.MAXIMIZE).evidence.verdict_caveats)
    assert "its search value 0.3000 was luck: it has 0.2000 ± 0.0 (mean of 3 new seeds)" in told


@pytest.mark.parametrize("values", [[0.31, 0.36], [0.31, 0.36, 0.30], [0.31, 0.36, 0.30, 0.33]])
def test_the_interval_of_a_further_seed_is_students(values: Sequence[float]) -> None:
    from scipy import stats  # half a second that every process of a run would pay

    seeds = range(1, len(values) + 1)
    result = confirm([*FOUND, *trained_again({0: values})], Direction.MINIMIZE, choosing=[], comparing=seeds)
    assert result is not None
    (config,) = result.candidates
    spread = math.sqrt(1 + 1 / len(values)) * statistics.stdev(values)
    expected = stats.t.interval(0.95, len(values) - 1, loc=statistics.fmean(values), scale=spread)
    assert (config.further_low, config.further_high) == pytest.approx(expected)


WORDS = {
    (0.30, 0.31, 0.32): "Shampoo beats AdamW by 26.2% at equal steps",
    (0.50, 0.51, 0.52): "Not worth it for this model: Shampoo falls short of AdamW by 21.4% at equal steps",
    (0.30, 0.50, 0.40): "3 new seeds do not tell Shampoo from AdamW at equal steps",
    (0.4102, 0.4201, 0.4303): "Not worth it for this model: Shampoo and AdamW are level at equal steps",
}


@pytest.mark.parametrize("ours", WORDS)
def test_terminal_and_snippet_say_how_sure_it_is(ours: tuple[float, float, float]) -> None:
    recommendation = recommendation_of({0: ours, 2: [0.41, 0.42, 0.43]})
    lines = evidence_lines(recommendation.evidence)
    assert any(line.startswith(f"{WORDS[ours]}. Over 3 new seeds, the improvement lies between") for line in lines)
    assert ("`recommend --job JOB --trial 2` prints the config of AdamW." in lines) == ("Not worth" in WORDS[ours])
    assert "±" in lines[0]
    assert PLUS_MINUS in lines
    assert any("another one as short may find other configs" in line for line in lines)
    assert any("With fewer than 6 seeds that holds for normal noise" in line for line in lines)
    assert any(line.endswith("confirmation 6 (6 completed).") for line in lines)
    snippet = python_snippet(recommendation)
    ast.parse(snippet)
    unfolded = snippet.replace("\n#   ", " ")
    assert "(mean of 3 new seeds, config of trial 0)" in unfolded
    assert [line for line in lines if f"# {line}\n" not in unfolded] == []


@pytest.mark.parametrize(
    ("ours", "headline", "detail"),
    [
        ([0.0] * 3, "Not worth it for this model: Shampoo and AdamW are level", "the mean of both is 0."),
        (
            [0.2, 0.2, 0.2],
            "Not worth it for this model: Shampoo falls short of AdamW",
            "the means are 0.2000 and 0.000:",
        ),
        ([0.0, 0.0, 0.6], "3 new seeds do not tell Shampoo from AdamW", "the means are 0.2000 and 0.000:"),
    ],
)
def test_what_new_seeds_measured_is_told_where_the_baselines_mean_is_0(
    ours: Sequence[float], headline: str, detail: str
) -> None:
    answer = answer_of(recommendation_of({0: ours, 2: [0.0] * 3}).evidence)
    assert answer is not None
    assert answer.headline == f"{headline} at equal steps"
    assert answer.detail.startswith(f"Over 3 new seeds, {detail}")
    assert SEARCH_VALUES not in answer.detail


def test_recommendations_stored_before_there_was_a_confirmation_are_read_as_ever() -> None:
    recommendation = recommend(FOUND, objectives=[Objective(METRIC, Direction.MINIMIZE)])
    assert recommendation is not None
    assert recommendation.evidence.status is EvidenceStatus.PROVISIONAL
    stored = json.loads(json.dumps(recommendation.to_json()))
    assert stored["evidence"].pop("confirmation") is None
    for name in ("verdict_caveats", "alternatives"):
        assert stored["evidence"].pop(name) == []
    for name in ("status", "search_interval"):
        del stored["evidence"][name]
    assert recommendation_from_json(stored) == recommendation


def test_the_luck_of_the_search_has_a_place_beside_that_of_the_seeds() -> None:
    evidence = recommendation_of({0: [0.30, 0.31, 0.32], 2: [0.41, 0.42, 0.43]}).evidence
    wider = answer_of(dataclasses.replace(evidence, search_interval=(-0.1, 0.5)))
    assert wider is not None
    assert wider.detail.endswith("which that does not cover, it lies between -10.0% and +50.0%.")
