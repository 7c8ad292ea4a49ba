"""The study of a side: every trial is in it as it is, and one that is rebuilt from rows is equal to it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import optuna
import pytest
from optuna.trial import TrialState as OptunaState

from search_spaces import Categorical, Float, Scalar, SearchSpace
from service.domain import Direction, FailureReason, Phase, TrialState
from service.scheduler.policy.job_policy import JobPolicy
from service.scheduler.policy.searching.auto_study import AutoStudySearch
from service.scheduler.policy.searching.phase_search import SampledSearch, TrialOutcome
from service.scheduler.policy.searching.samplers import adopt_sampler, make_sampler
from service.scheduler.policy.searching.sampling.dimensions import Dimensions
from service.scheduler.policy.searching.sampling.user_sampler import SamplerFailed
from service.scheduler.policy.searching.study import SearchStudy
from tests.support.service.searching.simulation import BASELINE, BASELINE_SPACE, SEARCH_SPACE, Job

LINE = SearchSpace("sgd", (Float("lr", 0.0, 1.0),))


@dataclass
class _Watched(Job):
    """A job whose policies can be looked at."""

    policies: list[JobPolicy] = field(default_factory=list)

    def policy(self) -> JobPolicy:
        self.policies.append(super().policy())
        return self.policies[-1]


def _study_of(policy: JobPolicy, side: str) -> optuna.Study:
    search = policy._sides[side].search
    if isinstance(search, AutoStudySearch):
        return search.study.study
    assert isinstance(search, SampledSearch)
    assert isinstance(search._sampler, SearchStudy)
    return search._sampler.study


def _facts(study: optuna.Study) -> list[tuple[object, ...]]:
    return [(t.number, t.state, t.params, t.intermediate_values, t.values, t.constraints) for t in study.trials]


@pytest.mark.parametrize("sampler", ["auto", "tpe", "random", "quasi"])
def test_a_study_has_every_trial_of_its_side_and_is_rebuilt_from_rows(sampler: str) -> None:
    job = _Watched(num_search=20, num_baseline=6, sampler=sampler)  # type: ignore[arg-type]
    job.run(num_workers=3, rng=random.Random(0))
    rebuilt = job.policy()
    for side, space in ((Phase.SEARCH, SEARCH_SPACE), (BASELINE, BASELINE_SPACE)):
        study = _study_of(job.policies[0], side)
        assert _facts(study) == _facts(_study_of(rebuilt, side))
        rows = [row for _, row in sorted(job.rows.items()) if row.side == side]
        assert len(study.trials) == len(rows)
        for trial, row in zip(study.trials, rows, strict=True):
            assert Dimensions(space).decoded(trial.params) == row.parameters
            assert trial.intermediate_values == dict(row.curve)
            assert trial.state.name == {"completed": "COMPLETE"}.get(row.state, "PRUNED")
    states = {row.state for row in job.rows.values()}
    assert states == {TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED}


def test_a_trial_under_way_has_its_measurements_and_a_paused_one_still_runs() -> None:
    job = _Watched(num_search=3, num_baseline=0, sampler="auto")
    policy = job.policy()
    for number in range(2):
        policy.ask()
        for step in range(1, 5 if number == 0 else 3):
            policy.report(number, step, 1.0 / step)
    first, second = _study_of(policy, Phase.SEARCH).trials
    assert first.state is second.state is OptunaState.RUNNING
    assert first.intermediate_values == {1: 1.0, 2: 0.5, 3: 1 / 3, 4: 0.25}
    assert second.intermediate_values == {1: 1.0, 2: 0.5}


def _tpe() -> SearchStudy:
    return make_sampler("tpe", LINE, directions=[Direction.MINIMIZE], num_trials=20, seed="0")


def test_endings_are_told_so_that_tpe_ranks_them() -> None:
    study = _tpe()
    outcomes = [
        TrialOutcome(TrialState.COMPLETED, None, (1.0,), ((9, 1.0),)),
        TrialOutcome(TrialState.PRUNED, None, (), ((3, 5.0),)),
        TrialOutcome(TrialState.FAILED, FailureReason.DIVERGED, (), ((8, 0.1),)),
        TrialOutcome(TrialState.FAILED, FailureReason.LOST, (), ((8, 0.1),)),
        TrialOutcome(TrialState.CANCELLED, None, (), ()),
    ]
    for number, outcome in enumerate(outcomes):
        study.begin(number, {"lr": 0.1})
        study.finish(number, outcome)
    told = [(trial.state, bool(trial.constraints), trial.intermediate_values) for trial in study.study.trials]
    assert told == [
        (OptunaState.COMPLETE, False, {9: 1.0}),
        (OptunaState.PRUNED, False, {3: 5.0}),
        (OptunaState.PRUNED, True, {8: 0.1}),
        (OptunaState.FAIL, False, {8: 0.1}),
        (OptunaState.FAIL, False, {}),
    ]


def test_a_value_beyond_its_range_is_at_the_edge_in_the_study() -> None:
    study = _tpe()
    study.begin(0, {"lr": 7.0})
    assert study.study.trials[0].params == {"lr": 1.0}


CHOICES = SearchSpace("shampoo", (Categorical("grafting", ("adam", "sgd")), Float("lr", 0.0, 1.0)))


class Counting(optuna.samplers.BaseSampler):
    """A user's sampler: remembers what a study tells it, and counts up."""

    def __init__(self, *, step: float, seed: int) -> None:
        self.step, self.seed = step, seed
        self.ended: list[tuple[int, OptunaState]] = []

    def infer_relative_search_space(
        self, study: optuna.Study, trial: optuna.trial.FrozenTrial
    ) -> dict[str, optuna.distributions.BaseDistribution]:
        return {}

    def sample_relative(
        self,
        study: optuna.Study,
        trial: optuna.trial.FrozenTrial,
        search_space: Mapping[str, optuna.distributions.BaseDistribution],
    ) -> dict[str, float]:
        return {}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: optuna.trial.FrozenTrial,
        param_name: str,
        param_distribution: optuna.distributions.BaseDistribution,
    ) -> float:
        return 1 if param_name == "grafting" else self.step * len(study.trials) + 1e-9

    def after_trial(self, study: object, trial: optuna.trial.FrozenTrial, state: OptunaState, values: object) -> None:
        self.ended.append((trial.number, state))


def test_a_users_sampler_is_asked_in_the_study_and_hears_of_endings(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Counting] = []
    inner = Counting.__init__

    def noted(self: Counting, *, step: float, seed: int) -> None:
        inner(self, step=step, seed=seed)
        made.append(self)

    monkeypatch.setattr(Counting, "__init__", noted)
    study = adopt_sampler(Counting, {"step": 0.1}, CHOICES, directions=[Direction.MINIMIZE], seed="0")
    study.begin(0, {"grafting": "adam", "lr": 0.5})
    suggested: list[dict[str, Scalar] | None] = [study.suggest(number) for number in (1, 2)]
    assert suggested == [{"grafting": "sgd", "lr": 0.2}, {"grafting": "sgd", "lr": 0.3}]  # rounded
    assert [trial.params["lr"] for trial in study.study.trials] == [0.5, 0.2, 0.3]
    study.finish(1, TrialOutcome(TrialState.COMPLETED, None, (1.0,), ()))
    (sampler,) = made
    assert sampler.ended == [(1, OptunaState.COMPLETE)]


def test_an_error_of_a_users_sampler_says_whose_it_is() -> None:
    study = adopt_sampler(Counting, {"step": "many"}, CHOICES, directions=[Direction.MINIMIZE], seed="0")
    with pytest.raises(SamplerFailed, match=r"the sampler .*test_study:Counting failed: TypeError: .*test_study\.py"):
        study.suggest(0)
    unmade = adopt_sampler(Counting, {}, CHOICES, directions=[Direction.MINIMIZE], seed="0")
    with pytest.raises(SamplerFailed, match="Counting cannot be made: TypeError"):
        unmade.suggest(0)


def test_optunas_own_grid_ends_a_side_after_its_last_point() -> None:
    grid = {"search_space": {"lr": [0.25, 0.75]}}
    study = adopt_sampler(optuna.samplers.GridSampler, grid, LINE, directions=[Direction.MINIMIZE], seed="0")
    tried = []
    for number in range(2):
        tried.append(study.suggest(number))
        study.finish(number, TrialOutcome(TrialState.COMPLETED, None, (1.0,), ()))
    assert sorted(map(str, tried)) == ["{'lr': 0.25}", "{'lr': 0.75}"]
    assert study.suggest(2) is None
