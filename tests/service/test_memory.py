"""Predicting what trials need of a rank's memory: against what optimizers keep, and of whole spaces."""

from __future__ import annotations

from typing import Any

import pytest

from service.api.estimate_schemas import JobEstimate
from service.domain import Phase
from service.estimates import Estimate
from service.memory import MemoryEstimate, MemoryPredictor, NotPredictable, SpaceMemory, estimate_memory
from service.planning import JobPlan, plan_job
from service.terminal import estimate_lines
from tests.service.scenarios import specification
from tests.waiting import PATIENCE_SECONDS
from trainers.config import TrialConfig
from trainers.distributed import single_process_context
from trainers.memory import state_bytes
from trainers.memory_prediction import predicted_bytes
from trainers.trial import build_trial
from trainers.workload import load

KIND = {"type": "categorical", "name": "preconditioner", "choices": ["none", "shampoo"]}


def plan(**fields: Any) -> JobPlan:
    return plan_job(specification(**fields))


def config_of(optimizer: str, **arguments: Any) -> TrialConfig:
    found = plan(search_space={"optimizer": optimizer, "fixed": arguments}, baseline=None)
    return found.trial_config(Phase.SEARCH, {})


@pytest.mark.parametrize(
    ("optimizer", "arguments"),
    [
        ("adamw", {}),
        ("sgd", {"momentum": 0.9}),
        ("sgd", {}),
        ("shampoo", {}),
        ("shampoo", {"preconditioner": "soap", "max_preconditioner_dim": 32}),
    ],
)
def test_a_prediction_is_weights_gradients_and_what_the_optimizer_keeps(
    optimizer: str, arguments: dict[str, Any]
) -> None:
    config = config_of(optimizer, **arguments)
    trial = build_trial(config, load(config.workload, config.workload_options), single_process_context())
    parameters = list(trial.parallel.model.parameters())
    for parameter in parameters:
        parameter.grad = parameter.detach().clone()
    trial.optimizer.step()  # torch's own make their state now
    weights = sum(parameter.nbytes for parameter in parameters)
    least = 2 * weights + state_bytes(trial.optimizer)
    predicted = predicted_bytes(config)
    if optimizer == "shampoo":  # with its scratch memory
        assert least < predicted < least + 3 * 4 * 1024 * 1024
    else:
        assert predicted == pytest.approx(least, abs=8 * len(parameters))  # counters of steps


def test_what_ranks_share_is_divided() -> None:
    config = config_of("shampoo")
    alone = predicted_bytes(config, world_size=1)
    assert predicted_bytes(config, world_size=4) == alone
    divided = TrialConfig.from_json({**config.to_json(), "parallelism": {"mode": "fsdp2", "shard_size": None}})
    assert predicted_bytes(divided, world_size=4) < 0.6 * alone


def test_the_share_of_a_space_that_cannot_fit_follows_from_the_limit() -> None:
    space = {"optimizer": "shampoo", "parameters": [KIND]}
    found = plan(search_space=space, baseline=None)
    small, large = (
        predicted_bytes(found.trial_config(Phase.SEARCH, {"preconditioner": kind})) for kind in ("none", "shampoo")
    )
    for limit, least, most in ((small - 1, 1.0, 1.0), (large - 1, 0.0, 0.99), (large, 0.0, 0.0)):
        limited = plan(search_space=space, baseline=None, resources={"memory_per_worker": limit})
        estimate = estimate_memory(limited, start_seconds=PATIENCE_SECONDS)
        assert estimate.problem is None
        of_search = estimate.spaces[Phase.SEARCH]
        assert estimate.limit_bytes == limit
        assert of_search.default_bytes == small
        assert of_search.largest_bytes in (small, large)
        assert of_search.share_infeasible is not None
        assert least <= of_search.share_infeasible <= most
        if of_search.num_points > 100 and limit == large - 1:
            assert of_search.share_infeasible == pytest.approx(0.5, abs=0.2)


def test_what_cannot_be_built_is_told_and_the_process_goes_on() -> None:
    found = plan()
    config = found.trial_config(Phase.SEARCH, found.spaces[Phase.SEARCH].defaults())
    broken = TrialConfig.from_json({**config.to_json(), "workload_options": {"hidden_sizes": [-3]}})
    with MemoryPredictor(found) as predictor:
        with pytest.raises(NotPredictable, match="hidden_sizes"):
            predictor.predict(broken, timeout_seconds=PATIENCE_SECONDS)
        assert predictor.predict(config, timeout_seconds=PATIENCE_SECONDS) == predicted_bytes(config)
        with pytest.raises(NotPredictable, match="takes too long"):
            predictor.predict(config, timeout_seconds=-1.0)
        with pytest.raises(NotPredictable, match="has ended"):
            predictor.predict(config, timeout_seconds=PATIENCE_SECONDS)


def test_the_dry_run_says_how_much_does_not_fit_or_why_that_is_unknown() -> None:
    def lines(memory: MemoryEstimate) -> str:
        estimate = Estimate(
            num_trials={Phase.SEARCH: 4},
            num_steps=40,
            max_steps=160,
            measured=None,
            max_device_hours=None,
            memory=memory,
        )
        return "\n".join(estimate_lines(JobEstimate.model_validate(estimate)))

    def of_search(share: float | None) -> dict[Phase, SpaceMemory]:
        return {Phase.SEARCH: SpaceMemory(2**30, 3 * 2**30, share, 201)}

    told = lines(MemoryEstimate(2 * 2**30, of_search(0.25)))
    assert "need 1 GiB on each rank with the defaults, up to 3 GiB in 201 points of the space." in told
    assert "25.0% of them do not fit and would not be launched." in told
    assert "The limit is 2 GiB for each rank." in told
    assert "would not be launched" not in lines(MemoryEstimate(4 * 2**30, of_search(0.0)))
    assert "Memory limit unknown" in lines(MemoryEstimate(None, of_search(None)))
    unknown = lines(MemoryEstimate(None, problem="torch is not installed here"))
    assert "The memory of trials cannot be predicted: torch is not installed here." in unknown
