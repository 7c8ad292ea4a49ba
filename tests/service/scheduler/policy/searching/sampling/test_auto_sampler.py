"""`AutoSampler` in plain Optuna."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np
import optuna
import pytest
from optuna.distributions import (
    BaseDistribution,
    CategoricalChoiceType,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import TrialState

from service.auto_sampler import AutoSampler
from service.scheduler.policy.searching.sampling.unit_space import UnitSpace
from tests.support.readmes import blocks

NUM_EPOCHS = 10
CHOICES: list[CategoricalChoiceType] = ["adam", None, True, 0.5]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


def _loss(lr: float, momentum: float, epoch: int) -> float:
    return (math.log10(lr) + 2) ** 2 + (momentum - 0.8) ** 2 + 3 / (1 + epoch)


def _objective(trial: optuna.Trial) -> float:
    lr = trial.suggest_float("lr", 1e-5, 10.0, log=True)
    momentum = trial.suggest_float("momentum", 0.0, 0.99)
    if lr > 3:
        raise optuna.TrialPruned  # diverged
    for epoch in range(NUM_EPOCHS):
        trial.report(_loss(lr, momentum, epoch), epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    return _loss(lr, momentum, NUM_EPOCHS - 1)


def _study(sampler: BaseSampler, num_trials: int, objective: Callable[[optuna.Trial], float]) -> optuna.Study:
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, n_trials=num_trials)
    return study


def test_the_ten_lines_of_the_readme_run() -> None:
    (program,) = [block for block in blocks("service/README.md", "python") if "AutoSampler" in block]
    names: dict[str, object] = {}
    exec(program, names)
    study = names["study"]
    assert isinstance(study, optuna.Study)
    assert len(study.trials) == 30
    assert len([line for line in program.splitlines() if line.strip()]) == 10
    assert study.best_value < 0.1


def test_it_finds_a_valley_sooner_than_random_draws() -> None:
    found: dict[str, list[float]] = {"auto": [], "random": []}
    for seed in range(2):
        for name, sampler in (("auto", AutoSampler(seed=seed)), ("random", RandomSampler(seed=seed))):
            found[name].append(_study(sampler, 25, _objective).best_value - 3 / NUM_EPOCHS)
    assert np.mean(found["auto"]) < 0.5 * np.mean(found["random"])


def test_suggestions_follow_from_the_seed_and_the_trials_of_the_study() -> None:
    def values(seed: int) -> list[float]:
        return [trial.params["lr"] for trial in _study(AutoSampler(seed=seed), 14, _objective).trials]

    assert values(1) == values(1) != values(2)


def test_partial_curves_of_pruned_trials_teach() -> None:
    """All but two trials are pruned half-way; only the model of curves knows how good those were."""

    def objective(trial: optuna.Trial) -> float:
        lr = trial.suggest_float("lr", 0.0, 1.0)
        for step in range(1, 21):
            trial.report((lr - 0.7) ** 2 + 1 / step, step)
            if step == 10 and trial.number > 1:
                raise optuna.TrialPruned
        return (lr - 0.7) ** 2 + 1 / 20

    study = _study(AutoSampler(seed=0), 24, objective)
    assert np.median([abs(trial.params["lr"] - 0.7) for trial in study.trials[14:]]) < 0.1


def test_a_space_that_is_given_is_suggested_from_the_first_trial_on() -> None:
    space: dict[str, BaseDistribution] = {"lr": FloatDistribution(1e-5, 10.0, log=True)}
    sampler = AutoSampler(search_space=space, max_steps=NUM_EPOCHS - 1, seed=0)
    study = _study(sampler, 3, _objective)
    assert study.trials[0].params["lr"] == pytest.approx(1e-2)  # the middle


def test_every_kind_of_parameter_and_ending_is_learned_from() -> None:
    def objective(trial: optuna.Trial) -> float:
        choice = trial.suggest_categorical("choice", CHOICES)
        depth = trial.suggest_int("depth", 2, 20, step=3)
        width = trial.suggest_int("width", 8, 512, log=True)
        rate = trial.suggest_float("rate", 0.1, 0.7, step=0.2)
        trial.suggest_int("fixed", 3, 3)
        if choice is None:
            trial.suggest_float("only of None", 0.0, 1.0)
            trial.set_constraint("memory", 1.0)
        if trial.number % 5 == 3:
            raise ValueError(depth)
        return math.nan if choice is True else depth + abs(math.log2(width) - 6) + rate

    study = optuna.create_study(sampler=AutoSampler(seed=0))
    study.optimize(objective, n_trials=36, catch=ValueError)
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE, TrialState.FAIL}
    feasible = [trial for trial in study.trials[18:] if not trial.constraints]
    assert len(feasible) > 9
    assert study.best_trial.params["depth"] == 2


def test_an_enqueued_value_beyond_its_range_counts_as_the_edge() -> None:
    def objective(trial: optuna.Trial) -> float:
        return trial.suggest_float("lr", 1e-5, 1.0, log=True) + trial.suggest_int("n", 1, 3)

    study = optuna.create_study(sampler=AutoSampler(seed=0))
    study.enqueue_trial({"lr": 1e-9, "n": 9})
    with pytest.warns(UserWarning, match="out of range"):
        study.optimize(objective, n_trials=4)
    assert study.trials[0].value == 9 + 1e-9


def test_several_threads_may_ask() -> None:
    study = optuna.create_study(sampler=AutoSampler(seed=0))
    study.optimize(_objective, n_trials=16, n_jobs=4)
    assert len({tuple(trial.params.items()) for trial in study.trials}) == 16  # none is suggested twice


def test_several_objectives_are_refused() -> None:
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=AutoSampler(seed=0))
    with pytest.raises(ValueError, match="knows one objective, and the study has 2"):
        study.ask().suggest_float("lr", 0, 1)


def test_positions_give_back_the_values_of_any_distribution() -> None:
    distributions: dict[str, BaseDistribution] = {
        "choice": CategoricalDistribution(CHOICES),
        "steps": IntDistribution(-4, 11, step=3),
        "log": IntDistribution(1, 1000, log=True),
        "rate": FloatDistribution(0.1, 0.7, step=0.2),
        "lr": FloatDistribution(1e-9, 1e9, log=True),
        "shift": FloatDistribution(1e6, 1e6 + 1),
    }
    units, sampler = UnitSpace(distributions), RandomSampler(seed=0)
    study = optuna.create_study(sampler=sampler)
    for _ in range(20):
        values = study.ask(distributions).params
        again = units.decoded(units.encoded(values))
        assert again == {**values, **{name: pytest.approx(values[name]) for name in ("rate", "lr", "shift")}}
    for _ in range(20):
        decoded = units.decoded(units.space.sample(random.Random(0)))
        assert all(each._contains(each.to_internal_repr(decoded[name])) for name, each in distributions.items())


@pytest.mark.processes
def test_it_needs_neither_ray_nor_torch_nor_a_database() -> None:
    program = (
        "import sys, service.auto_sampler; "
        "print([name for name in ('ray', 'torch', 'sqlalchemy', 'fastapi') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"
