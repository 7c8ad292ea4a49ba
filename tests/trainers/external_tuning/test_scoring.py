"""The score of a small case worked by hand, and of a published leaderboard."""

from __future__ import annotations

import csv
import json
import math
import sys
from pathlib import Path

import pytest

from tests.benchmarks.training import algoperf_score
from trainers.external_tuning.protocol import Run
from trainers.external_tuning.scoring import profile, ratios, score, times

LEADERBOARD = Path(__file__).with_name("published_leaderboard.csv")
"""Seconds to target and scores of AlgoPerf's self-tuning leaderboard by wall clock (mlcommons, submissions_algorithms,
analysis/data)."""


def runs(submission: str, workload: str, studies: list[list[int | None]]) -> list[Run]:
    """Runs with these steps to the goal, and twice as many seconds."""
    return [
        Run(submission, workload, study, trial, steps, None if steps is None else 2.0 * steps)
        for study, of_study in enumerate(studies)
        for trial, steps in enumerate(of_study)
    ]


BY_HAND = [
    # The best trials of the studies take 10, 20, 30, never, never: 30 is in the middle.
    *runs("ours", "one", [[10, None], [90, 20], [30, 30], [None, None], [None, None]]),
    # Two of five studies are too few.
    *runs("ours", "two", [[10], [10], [None], [None], [None]]),
    *runs("theirs", "one", [[60], [60], [60], [60], [60]]),
    *runs("theirs", "two", [[50], [40], [40], [40], [None]]),
    # Only one submission runs this one; the other one has missed it.
    *runs("theirs", "three", [[7], [7], [7], [7], [7]]),
]


def test_the_time_on_a_workload_is_the_median_over_studies_of_the_best_trial() -> None:
    assert times(BY_HAND, "steps") == {
        "ours": {"one": 30, "two": math.inf, "three": math.inf},
        "theirs": {"one": 60, "two": 40, "three": 7},
    }
    assert times(BY_HAND, "seconds")["theirs"] == {"one": 120, "two": 80, "three": 14}


def test_profiles_and_scores_of_a_case_worked_by_hand() -> None:
    found = ratios(times(BY_HAND, "steps"))
    assert found == {
        "ours": {"one": 1, "two": math.inf, "three": math.inf},
        "theirs": {"one": 2, "two": 1, "three": 1},
    }
    assert profile(found["ours"]) == [(1.0, 1 / 3)]
    assert profile(found["theirs"]) == [(1.0, 2 / 3), (2.0, 1.0)]
    # From 1 to 4 the first profile is 1/3 throughout; the other one 2/3 up to 2, then 1: (2/3 + 2) / 3.
    assert score(found["ours"]) == pytest.approx(1 / 3)
    assert score(found["theirs"]) == pytest.approx(8 / 9)
    assert score(found["theirs"], max_ratio=2) == pytest.approx(2 / 3)


def test_a_workload_that_nobody_reaches_counts_for_nobody() -> None:
    found = ratios(times([*runs("a", "one", [[None]]), *runs("b", "one", [[None]])], "steps", num_studies=1))
    assert found == {"a": {"one": math.inf}, "b": {"one": math.inf}}
    assert score(found["a"]) == 0
    assert profile(found["a"]) == []


def test_half_of_an_even_number_of_studies_is_not_enough() -> None:
    assert times(runs("a", "one", [[1], [2], [None], [None]]), "steps", num_studies=4)["a"]["one"] == math.inf
    assert times(runs("a", "one", [[1], [2], [3], [None]]), "steps", num_studies=4)["a"]["one"] == 3


def test_a_study_beyond_their_number_is_refused() -> None:
    with pytest.raises(ValueError, match="below 2, got study 2 of a"):
        times(runs("a", "one", [[1], [1], [1]]), "steps", num_studies=2)


def test_the_scores_of_a_published_leaderboard_follow_from_its_times() -> None:
    with LEADERBOARD.open() as file:
        rows = list(csv.DictReader(file))
    published = {row.pop("submission"): row for row in rows}
    stated = {name: float(row.pop("score")) for name, row in published.items()}
    found = ratios({name: {w: float(time) for w, time in row.items()} for name, row in published.items()})
    for name, value in stated.items():
        # They sum over 100 values of τ, so that each rise of a profile may count for half an interval more or less.
        assert score(found[name]) == pytest.approx(value, abs=0.5 / 99), name


def test_the_benchmark_scores_any_files_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: tmp_path / f"{name}.jsonl" for name in ("ours", "theirs")}
    for name, path in files.items():
        path.write_text("".join(json.dumps(run.to_json()) + "\n" for run in BY_HAND if run.submission == name))
    monkeypatch.setattr(sys, "argv", ["algoperf_score", *map(str, files.values())])
    algoperf_score.main()
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["ratios"]["score.ours"] == pytest.approx(1 / 3)
    assert printed["ratios"]["score.theirs"] == pytest.approx(8 / 9)
    assert printed["figures"]["times"]["ours"] == {"one": 30, "two": None, "three": None}
