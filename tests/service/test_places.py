"""Places of trials, in words."""

from __future__ import annotations

from service.places import NodePlace, lines_of, places_of, words_by_run


def test_ranks_on_one_machine_are_one_place_with_all_their_gpus() -> None:
    ranks = [NodePlace("b", ("10",)), NodePlace("a", ("0",)), NodePlace("b", ("2",)), NodePlace("b", ("3",))]
    assert places_of(ranks) == (NodePlace("b", ("2", "3", "10")), NodePlace("a", ("0",)))
    assert places_of([NodePlace("a", ()), NodePlace("a", ())]) == (NodePlace("a", ()),)
    assert places_of([]) == ()


def test_places_are_told_by_run() -> None:
    wide = places_of([NodePlace("a", ("0",)), NodePlace("a", ("1",)), NodePlace("b", ("7",))])
    stored = {"10": [{"node": "c", "gpus": []}], "2": [place.to_json() for place in wide]}
    assert words_by_run(stored) == {2: "a, GPUs 0 and 1; b, GPU 7", 10: "c, CPU"}
    assert words_by_run(None) == {}


def test_runs_at_the_same_place_are_told_together() -> None:
    assert lines_of({}) == []
    assert lines_of({1: "a, CPU", 3: "a, CPU"}) == ["a, CPU"]
    assert lines_of({4: "a", 1: "a", 2: "b", 3: "b"}) == ["run 1: a", "runs 2 to 3: b", "run 4: a"]
