"""Jobs whose configs were trained again with new seeds, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from service.domain import Direction, FailureReason, Objective, Phase, TrialState
from service.evidence.finished_trial import FinishedTrial
from service.evidence.recommend import recommend
from service.evidence.recommended import RecommendedConfig
from service.evidence.types import MIN_TRIED
from trainers.config import OptimizerConfig, OptimizerName, TrialConfig
from trainers.stored_config import StoredConfig

METRIC = "validation_loss"


def finished_trial(
    number: int,
    phase: Phase,
    values: Sequence[float | None],
    *,
    confirms: int | None = None,
    seed: int = 0,
    **fields: Any,
) -> FinishedTrial:
    """A trial measured at steps 10, 20, ..., whose last value is its objective."""
    optimizer: OptimizerName = fields.pop("optimizer", "adamw" if phase is Phase.BASELINE else "shampoo")
    config = TrialConfig(
        workload="digits-mlp",
        optimizer=OptimizerConfig(optimizer, {"lr": 0.1 / (1 + number)}),
        num_steps=40,
        evaluate_every=10,
        batch_size=128,
        seed=seed,
    )
    curve = [(10 * i, 1.0 * i, {METRIC: value}) for i, value in enumerate(values, start=1)]
    content: dict[str, Any] = {"state": TrialState.COMPLETED, "reason": None, "value": values[-1], **fields}
    return FinishedTrial(
        number, phase, config=StoredConfig.of(config.to_json()), curve=curve, confirms=confirms, **content
    )


FOUND = [
    finished_trial(0, Phase.SEARCH, [0.9, 0.30]),
    finished_trial(1, Phase.SEARCH, [0.9, 0.25]),
    finished_trial(2, Phase.BASELINE, [0.9, 0.40]),
    finished_trial(3, Phase.SEARCH, [0.9, 0.80]),
    finished_trial(4, Phase.BASELINE, [0.9, 0.45]),
]


PRUNED = [
    finished_trial(100 + index, phase, [0.9], state=TrialState.PRUNED, value=None)
    for index, phase in enumerate([Phase.SEARCH, Phase.BASELINE] * MIN_TRIED)
]


def trained_again(values: Mapping[int, Sequence[float | None]]) -> list[FinishedTrial]:
    """Confirmation trials: the value of each found trial with each seed; None: it diverged."""
    trials: list[FinishedTrial] = []
    for source, of_seeds in values.items():
        for seed, value in enumerate(of_seeds, start=1):
            ending: dict[str, Any] = {}
            if value is None:
                ending = {"state": TrialState.FAILED, "reason": FailureReason.DIVERGED}
            optimizer = "adamw" if FOUND[source].phase is Phase.BASELINE else "shampoo"
            curve = [None] if value is None else [2 * value, value]
            trials.append(
                finished_trial(
                    10 + len(trials),
                    Phase.CONFIRMATION,
                    curve,
                    confirms=source,
                    seed=seed,
                    optimizer=optimizer,
                    **ending,
                )
            )
    return trials


def recommendation_of(
    values: Mapping[int, Sequence[float | None]],
    *,
    top_k: int = 1,
    num_seeds: int | None = None,
    direction: Direction = Direction.MINIMIZE,
) -> RecommendedConfig:
    """Args:
    values: of each found trial's config by seed; with `top_k` above 1 the first one of fewer than eight chooses.
    """
    num_seeds = num_seeds or max(map(len, values.values()), default=3)
    recommendation = recommend(
        [*FOUND, *PRUNED, *trained_again(values)],
        objectives=[Objective(METRIC, direction)],
        num_planned=len(FOUND) + len(PRUNED),
        seeds=range(1, num_seeds + 1),
        top_k=top_k,
    )
    assert recommendation is not None
    return recommendation


def recommendation_with(config: dict[str, Any], optimizer: str = "shampoo") -> RecommendedConfig:
    """One with these arguments of the optimizer, for 12 steps with warm-up, decay and clipping."""
    base = recommendation_of({0: [0.31, 0.33], 2: [0.41, 0.42]})
    return base.model_copy(
        update={
            "optimizer": optimizer,
            "config": {"lr": 0.02, **config},
            "schedule": {"warmup_fraction": 0.2, "decay": "cosine", "horizon": 1.0},
            "training": {**base.training, "num_steps": 12, "gradient_clip_norm": 40.0},
        }
    )
