"""The answers of processes that are asked about workloads and models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainers.identity.values import Fingerprint, ModelShape, ParameterShape, ToldModel
from trainers.workload.description import WorkloadDescription
from trainers.workloads.describe import Installed
from trainers.workloads.messages import Refused, Tellable, answer_from_line, answer_to_line
from trainers.workloads.registry import BUILT_IN

SHAPE = ModelShape((ParameterShape("linear", (3, 2), 4),))


def test_answers_are_read_as_they_were_written() -> None:
    descriptions = tuple(BUILT_IN.values())
    fingerprint = Fingerprint(SHAPE, "mine:Mine width=3", "mine:Mine", "ab12", {"width": 3}, 5, ("tied",))
    answers: list[tuple[Tellable, Callable[[Any], Tellable]]] = [
        *((description, WorkloadDescription.from_json) for description in descriptions),
        (Installed(descriptions, {"broken": "no\nway"}), Installed.from_json),
        (ToldModel("ab12", SHAPE), ToldModel.from_json),
        (ToldModel("ab12", None), ToldModel.from_json),
        (fingerprint, Fingerprint.from_json),
    ]
    for answer, read in answers:
        line = answer_to_line(answer)
        assert "\n" not in line
        assert answer_from_line(line.encode(), read) == answer
        for refused in (Refused("no\nway"), Refused("is required", "workload_options.path")):
            assert answer_from_line(answer_to_line(refused), read) == refused


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"hello",
        b"1",
        b"[]",
        b'"told"',
        b'["told", 1]',
        b'["told", {}]',
        b'["refused", 1]',
        b'["asked", {}]',
        b'{"refused": "no way"}',
    ],
)
def test_a_line_of_something_else_is_no_answer(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"Expecting value|unpack|is no answer"):
        answer_from_line(line, ToldModel.from_json)


def test_an_answer_that_json_cannot_hold_is_none() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        answer_to_line(Fingerprint(SHAPE, "mine:Mine", options={"scale": float("nan")}))
