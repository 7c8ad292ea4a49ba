"""Settings by dotted paths: what they change, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from trainers.arguments import set_at
from trainers.config import InvalidConfig


def test_a_path_leads_through_objects_and_lists_and_makes_objects_that_are_missing() -> None:
    content: dict[str, Any] = {"parameters": [{"low": 1}], "baseline": None}
    set_at(content, "parameters[0].low", 2)
    set_at(content, "baseline.budget_share", 0.5)
    set_at(content, "budget.num_trials", 8)
    assert content == {"parameters": [{"low": 2}], "baseline": {"budget_share": 0.5}, "budget": {"num_trials": 8}}


@pytest.mark.parametrize("path", ["", ".", "a..b", "a.", "name.first", "tags[0]", "list[5]", "name[0]"])
def test_a_path_that_leads_nowhere_is_refused_with_its_name(path: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        set_at({"name": "x", "list": [1]}, path, 1)
    assert refused.value.field == path
    assert refused.value.message.startswith(("is no path like budget.num_trials", "cannot be set to 1: there is no "))
