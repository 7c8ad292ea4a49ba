"""How trials ended, in what is stored of a recommendation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from service.domain import FailureReason, TrialState
from service.evidence.finished_trial import TrialEnding
from service.evidence.recommended import recommendation_from_json
from service.evidence.types import SeedResult
from tests.support.service.confirmed import recommendation_of

STORED: TypeAdapter[SeedResult] = TypeAdapter(SeedResult)


def stored(ending: str, value: float | None = None) -> dict[str, Any]:
    return {"seed": 1, "number": 7, "ending": ending, "value": value}


def test_a_stored_recommendation_tells_endings_as_text_and_is_read_as_it_was() -> None:
    found = recommendation_of({0: [0.30, 0.31, 0.32], 2: [0.41, None, 0.43]})
    content = json.loads(json.dumps(found.to_json()))
    told = [result["ending"] for result in content["evidence"]["confirmation"]["baseline"]["results"]]
    assert told == ["completed", "failed (diverged)", "completed"]
    assert recommendation_from_json(content) == found


@pytest.mark.parametrize(
    ("told", "ending", "has_failed"),
    [
        ("completed", TrialEnding(TrialState.COMPLETED), True),  # without a value
        ("pruned", TrialEnding(TrialState.PRUNED), False),
        ("cancelled", TrialEnding(TrialState.CANCELLED), False),
        ("failed (diverged)", TrialEnding(TrialState.FAILED, FailureReason.DIVERGED), True),
        ("failed (out_of_memory)", TrialEnding(TrialState.FAILED, FailureReason.OUT_OF_MEMORY), True),
    ],
)
def test_an_ending_is_read_from_its_text_and_written_as_it(told: str, ending: TrialEnding, has_failed: bool) -> None:
    result = STORED.validate_python(stored(told))
    assert (result.ending, result.has_failed) == (ending, has_failed)
    assert STORED.dump_python(result, mode="json") == stored(told)


def test_a_completed_trial_with_a_value_has_not_failed() -> None:
    assert not STORED.validate_python(stored("completed", 0.3)).has_failed


def test_an_ending_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError, match="'failed \\(bored\\)' is not how a trial ends"):
        STORED.validate_python(stored("failed (bored)"))
    with pytest.raises(ValidationError, match="is not how a trial ends"):
        STORED.validate_python(stored("failedish"))


def test_the_schema_of_an_ending_is_that_of_a_text() -> None:
    for schema in (STORED.json_schema(mode="validation"), STORED.json_schema(mode="serialization")):
        assert schema["properties"]["ending"] == {"title": "Ending", "type": "string"}
