"""Caveats have kinds, and those that were stored before there were any stay readable."""

from __future__ import annotations

from service.evidence.caveat_kinds import Caveat, CaveatKind
from service.evidence.in_words.words import evidence_lines
from service.evidence.recommended import recommendation_from_json
from tests.support.service.confirmed import recommendation_of


def test_a_caveat_is_stored_with_its_kind_and_the_trial_that_it_is_about() -> None:
    found = recommendation_of({0: [0.30, None, 0.32], 2: [0.40, 0.41, 0.42]})
    [told] = [caveat for caveat in found.evidence.caveats if caveat.kind is CaveatKind.FAILED_WITH_A_SEED]
    assert told.sentence == "The config of trial 0 failed with seed 2: failed (diverged)."
    assert told.trial is not None
    assert found.to_json()["evidence"]["caveats"][-1] == {
        "kind": "failed_with_a_seed",
        "sentence": told.sentence,
        "trial": told.trial,
    }
    assert recommendation_from_json(found.to_json()) == found


def test_caveats_that_were_stored_as_sentences_are_read_and_told_as_they_were() -> None:
    content = recommendation_of({0: [0.30, 0.31, 0.32], 2: [0.40, 0.41, 0.42]}).to_json()
    content["evidence"] |= {"caveats": ["Once it was so."], "verdict_caveats": ["And so."]}
    evidence = recommendation_from_json(content).evidence
    assert evidence.caveats == [Caveat(CaveatKind.OTHER, "Once it was so.")]
    assert evidence.verdict_caveats == [Caveat(CaveatKind.OTHER, "And so.")]
    assert evidence_lines(evidence)[-1] == "Once it was so."
    assert "And so." in evidence_lines(evidence)
