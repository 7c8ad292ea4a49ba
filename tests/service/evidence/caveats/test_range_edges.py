"""A winner at the edge of its range has a caveat, in words."""

from __future__ import annotations

from typing import Any

import pytest

from search_spaces import SearchSpace
from search_spaces.parameters import Float
from service.domain import Direction, Objective, Phase, TrialState
from service.evidence.caveat_kinds import CaveatKind
from service.evidence.caveats.range_edges import edge_caveats
from service.evidence.finished_trial import FinishedTrial
from service.evidence.formats.snippet import python_snippet
from service.evidence.recommend import recommend
from tests.support.service.caveats import sentences
from trainers.config import OptimizerConfig, TrialConfig
from trainers.stored_config import StoredConfig

SPACES = {
    Phase.SEARCH: SearchSpace("shampoo", (Float("lr", 1e-4, 0.03, "log"), Float("weight_decay", 0.01, 0.2))),
    "adamw": SearchSpace("adamw", (Float("lr", 1e-4, 0.01, "log"),)),
}


def finished(number: int, phase: Phase, value: float, **parameters: Any) -> FinishedTrial:
    optimizer = OptimizerConfig("shampoo" if phase is Phase.SEARCH else "adamw", parameters)
    config = TrialConfig(workload="digits-mlp", optimizer=optimizer, num_steps=40, batch_size=8, evaluate_every=10)
    curve = [(40, 1.0, {"validation_loss": value})]
    stored = StoredConfig.of(config.to_json())
    return FinishedTrial(number, phase, TrialState.COMPLETED, None, stored, value, curve, parameters=parameters)


def test_the_sentence_says_which_value_at_which_bound_and_what_to_do() -> None:
    [found] = edge_caveats(Phase.SEARCH, SPACES[Phase.SEARCH], {"lr": 0.0289, "weight_decay": 0.01}, trial=7)
    assert (found.kind, found.trial) == (CaveatKind.AT_THE_EDGE, 7)
    assert found.sentence == (
        "The recommended config lies at the edge of what was searched: lr = 0.0289 by the upper bound 0.03, "
        "weight_decay = 0.01 by the lower bound 0.01. Better values may lie beyond: widen the range in the job's "
        "search space, or `try` such values (--beyond-bounds --set lr=... --set weight_decay=...)."
    )
    assert edge_caveats(Phase.SEARCH, SPACES[Phase.SEARCH], {"lr": 0.01, "weight_decay": 0.1}, trial=7) == []
    [of_baseline] = edge_caveats("adamw", SPACES["adamw"], {"lr": 0.01}, trial=7)
    assert (
        "`try` such values (--beyond-bounds --phase baseline --optimizer adamw --set lr=...)." in of_baseline.sentence
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "whose"),
    [(0.0299, 0.001, ["The recommended"]), (0.01, 0.01, ["The baseline's best"]), (0.01, 0.001, [])],
)
def test_both_winners_are_looked_at(ours: float, theirs: float, whose: list[str]) -> None:
    trials = [
        finished(0, Phase.SEARCH, 0.2, lr=ours, weight_decay=0.1),
        finished(1, Phase.SEARCH, 0.3, lr=1e-4, weight_decay=0.2),
        finished(2, Phase.BASELINE, 0.3, lr=theirs),
        *(finished(number, Phase.SEARCH, 0.4, lr=0.01, weight_decay=0.1) for number in range(3, 9)),
        *(finished(number, Phase.BASELINE, 0.4, lr=0.001) for number in range(9, 16)),
    ]
    found = recommend(trials, objectives=[Objective("validation_loss", Direction.MINIMIZE)], spaces=SPACES)
    assert found is not None
    told = [caveat for caveat in sentences(found.evidence.caveats) if "at the edge" in caveat]
    assert [caveat.partition(" config")[0] for caveat in told] == whose
    assert ("at the edge" in python_snippet(found)) == bool(whose)

    few = recommend(trials[:8], objectives=[Objective("validation_loss", Direction.MINIMIZE)], spaces=SPACES)
    assert few is not None
    assert not any("at the edge" in caveat for caveat in sentences(few.evidence.caveats)), (
        "where the best of so few lies is luck"
    )
