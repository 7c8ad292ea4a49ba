"""A workload whose `evaluate` does not keep what its description promises."""

from __future__ import annotations

from typing import Any

import pytest

from trainers.config import OptimizerConfig, TrialConfig
from trainers.loop import train
from trainers.ranks.context import single_process_context
from trainers.workloads.digits.digits import DigitsMLP

CONFIG = TrialConfig(
    workload="digits-mlp", optimizer=OptimizerConfig("adamw"), num_steps=4, batch_size=8, evaluate_every=2
)


def test_a_declared_metric_that_evaluate_does_not_give_is_named_at_the_first_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = DigitsMLP.evaluate

    def evaluate(self: DigitsMLP, *args: Any, **kwargs: Any) -> dict[str, tuple[float, float]]:
        given = whole(self, *args, **kwargs)
        return {"loss": given["validation_loss"], "validation_accuracy": given["validation_accuracy"]}

    monkeypatch.setattr(DigitsMLP, "evaluate", evaluate)
    said = (
        "evaluate must give every metric that the workload declares: it did not give validation_loss, "
        "only loss, validation_accuracy"
    )
    with pytest.raises(ValueError, match=f"^{said}$"):
        next(train(CONFIG, single_process_context()))


@pytest.mark.parametrize("given", [0.5, {"validation_loss": 0.5}, {"validation_loss": ("a", "b")}])
def test_what_is_no_share_of_metrics_is_told(given: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DigitsMLP, "evaluate", lambda *_args, **_kwargs: given)
    with pytest.raises(ValueError, match=r"evaluate must give \{metric: \(sum, weight\)\}, got "):
        next(train(CONFIG, single_process_context()))
