"""Studies of Optuna: their direction."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import optuna
import pytest

from tests.service.imports.importing import imported, refused


def _make_study(url: str, name: str, *, direction: Literal["minimize", "maximize"] = "minimize") -> None:
    """A study with a completed trial for each of three learning rates, which are their values."""
    storage = optuna.storages.RDBStorage(url)
    study = optuna.create_study(storage=storage, study_name=name, direction=direction)
    distributions: dict[str, Any] = {
        "lr": optuna.distributions.FloatDistribution(1e-4, 1),
        "weight_decay": optuna.distributions.FloatDistribution(0, 0.5),
    }
    for lr in (0.2, 0.9, 0.1):
        params = {"lr": lr, "weight_decay": 0.0}
        study.add_trial(optuna.create_trial(params=params, distributions=distributions, value=lr))
    storage.engine.dispose()


@pytest.mark.slow
def test_a_study_of_the_other_direction_is_refused(tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path}/study.db"
    _make_study(source, "max", direction="maximize")
    told = refused(tmp_path, source)
    assert "the study 'max' maximizes, and the job minimizes validation_loss" in told
    assert "A job whose objective is maximized, as validation_accuracy, can begin with it" in told
    # What it advises works, and the best there is the best here.
    found, _ = imported(tmp_path, source, "--pin", "1", objectives=[{"metric": "validation_accuracy"}])
    assert found["pinned"] == [{"lr": 0.9, "weight_decay": 0.0}]
    _make_study(source, "min")
    told = refused(tmp_path, source, "--study", "min", objectives=[{"metric": "validation_accuracy"}])
    assert "the study 'min' minimizes, and the job maximizes validation_accuracy" in told
