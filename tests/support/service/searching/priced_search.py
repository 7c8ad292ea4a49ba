"""Searches over a Shampoo whose trials' values follow a known law, so that the price of a setting is known, too."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from search_spaces import Scalar, SearchSpace
from service.domain import Direction, TrialState
from service.evidence.prices import CheaperSetting, RelativeChange
from service.scheduler.insights.compared import EndedTrial, TrialDevices
from service.scheduler.insights.of_side import insights_of_side
from service.scheduler.insights.predicted_cost import GroupShapes
from service.scheduler.policy.searching.auto import AutoSearch
from service.scheduler.policy.searching.phase_search import New, TrialOutcome

SPACE = SearchSpace.from_json(
    {
        "optimizer": "shampoo",
        "parameters": [
            {"type": "float", "name": "lr", "low": 1e-4, "high": 1e-1, "scale": "log"},
            {"type": "float", "name": "weight_decay", "low": 1e-4, "high": 1e-1, "scale": "log"},
            {"type": "integer", "name": "precondition_frequency", "low": 1, "high": 64, "scale": "log"},
            {"type": "categorical", "name": "state_dtype", "choices": ["float32", "bfloat16"]},
        ],
    }
)
MODEL = (GroupShapes({}, [(256, 64), (256,), (256, 256), (256,), (10, 256), (10,)]),)
HERE = TrialDevices("cpu", None, 1)


def loss(values: Mapping[str, Any], effect: float) -> float:
    """The expected loss: it is best at one learning rate, and rises by the share `effect` from the shortest refresh
    period to the longest, evenly over octaves. The type of the state changes nothing."""
    lr, decay = (math.log10(values[name]) for name in ("lr", "weight_decay"))
    period = math.log2(values["precondition_frequency"]) / 6
    bowl = 0.25 * (lr + 2.4) ** 2 + 0.03 * (decay + 2) ** 2
    return 0.3 * math.exp(bowl + period * math.log1p(effect))


def seconds_per_step(values: Mapping[str, Any]) -> float:
    """Half a millisecond, plus half a millisecond divided by the refresh period."""
    return 5e-4 + 5e-4 / float(values["precondition_frequency"])


def trial(number: int, values: Mapping[str, Any], value: float, **fields: Any) -> EndedTrial:
    """A completed trial of the search."""
    return EndedTrial(
        str(number),
        number,
        TrialState.COMPLETED,
        None,
        values,
        value,
        progress=1.0,
        **{"seconds_per_step": fields.get("seconds_per_step") or seconds_per_step(values), "place": HERE, **fields},
    )


def searched(count: int, effect: float, *, noise: float, seed: int, by_auto: bool = False) -> list[EndedTrial]:
    """Trials at random points, or at points that `auto` chose, whose values differ from the expected ones by `noise`, a
    share of them."""
    rng = random.Random(seed)
    search = AutoSearch(SPACE, direction=Direction.MINIMIZE, max_steps=100, pauses=False, seed=seed)
    found = []
    for number in range(count):
        values: Mapping[str, Scalar] = SPACE.sample(rng)
        if by_auto:
            choice = search.choose(number, may_start=True)
            assert isinstance(choice, New)
            values = choice.parameters
        value = loss(values, effect) * math.exp(rng.gauss(0, noise))
        if by_auto:
            search.report(number, 100, value)
            search.finish(number, TrialOutcome(TrialState.COMPLETED, None, (value,), [(100, value)]))
        clock = seconds_per_step(values) * math.exp(rng.gauss(0, 0.05))
        found.append(trial(number, values, value, seconds_per_step=clock))
    return found


def prices(trials: Sequence[EndedTrial], space: SearchSpace = SPACE) -> list[CheaperSetting]:
    """The prices of settings that are cheaper than the best trial's, on a small perceptron."""
    return insights_of_side("search", space, trials, Direction.MINIMIZE, {}, MODEL).prices


def true_changes(setting: CheaperSetting, effect: float) -> tuple[float, float]:
    """The shares by which loss and time of a step truly change with a setting."""
    if setting.parameter != "precondition_frequency":
        return 0.0, 0.0
    periods = [{"precondition_frequency": period} for period in (setting.value, setting.best_value)]
    before, after = ({"lr": 1e-2, "weight_decay": 1e-2, **one} for one in reversed(periods))
    return (
        loss(after, effect) / loss(before, effect) - 1,
        seconds_per_step(after) / seconds_per_step(before) - 1,
    )


def holds(change: RelativeChange, truth: float) -> bool:
    """True if the interval holds the truth."""
    return change.low <= truth <= change.high
