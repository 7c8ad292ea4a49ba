"""The recorder, which writes and tells, without Ray: Tune's callbacks are called as Tune calls them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from service.domain import FailureReason, Phase, TrialState
from service.scheduler.policy.job_policy import JobPolicy
from service.scheduler.policy.protocol import Decision, Done, Fork
from service.scheduler.policy.retries import MAX_LOSSES, Retries, Setbacks
from service.scheduler.policy.searching.phase_search import Choice, GoOn, TrialOutcome
from service.scheduler.policy.sides import SidePlan
from service.scheduler.tune.messages import TrialOrder, TrialReport
from service.scheduler.tune.run_end import Ending, JobImpossible, RunEnded
from service.specification.identity import fingerprint_of
from service.specification.job import Budget, Constraint, JobSpecification
from service.specification.planning import plan_job
from service.store.session import Database
from service.use_cases.leases import claim_job, register_worker
from service.use_cases.steer import cancel_job, change_budget
from tests.support.service.searching.tune_calls import SPECIFICATION, Tune, measured
from trainers.config import InvalidConfig
from trainers.config_part import Refusal
from trainers.identity.values import Environment, TrialIdentity


def test_a_completed_trial_is_stored_with_all_its_measurements_and_its_checkpoints_go(
    sqlite_database: Database, tmp_path: Path
) -> None:
    tune = Tune(sqlite_database, tmp_path)
    trial = tune.begin()
    (tmp_path / "0").mkdir()
    for step in (10, 20, 30):
        assert tune.give(trial, measured(step)) == "CONTINUE"
    assert tune.give(trial, measured(40, kind="completed")) == "STOP"
    [stored] = tune.stored()
    assert (stored.state, stored.value, stored.runs) == (TrialState.COMPLETED, 1 / 40, 1)
    assert [measurement.step for measurement in stored.measurements] == [10, 20, 30, 40]
    assert not (tmp_path / "0").exists()


def test_the_identity_that_comes_with_the_first_measurement_is_stored(
    sqlite_database: Database, tmp_path: Path
) -> None:
    tune = Tune(sqlite_database, tmp_path)
    trial = tune.begin()
    environment = Environment("cpu", None, 1, {"torch": "2.13.0"})
    tune.give(trial, dataclasses.replace(measured(10), identity=TrialIdentity("model", "data", environment)))
    tune.give(trial, measured(20))
    [stored] = tune.stored()
    assert stored.fingerprint == fingerprint_of(plan_job(SPECIFICATION), "model")
    assert stored.data_digest not in (None, "data")
    assert stored.environment == dataclasses.asdict(environment)


def test_when_every_trial_has_ended_the_run_is_done(sqlite_database: Database, tmp_path: Path) -> None:
    tune = Tune(sqlite_database, tmp_path)
    for _ in range(2):
        tune.give(tune.begin(), measured(40, kind="completed"))
    with pytest.raises(RunEnded) as ended:
        tune.searcher.suggest("tune-1")
    assert ended.value.ending is Ending.DONE


def test_a_lost_trial_comes_back_a_few_times_and_then_fails(sqlite_database: Database, tmp_path: Path) -> None:
    tune = Tune(sqlite_database, tmp_path)
    (tmp_path / "0").mkdir()
    for losses in range(1, MAX_LOSSES + 2):
        trial = tune.begin()
        assert TrialOrder.from_tune(trial.config).number == 0
        tune.give(trial, measured(losses))
        if losses == 2:
            tune.recorder.on_trial_error(0, [], trial)  # the trainable's own process died
        else:
            tune.give(trial, TrialReport("failed", reason=FailureReason.LOST, detail="a rank died"))
        [stored] = tune.stored()
        if losses <= MAX_LOSSES:
            assert (stored.state, stored.runs) == (TrialState.QUEUED, losses)
            assert (tmp_path / "0").exists()
    assert (stored.state, stored.reason) == (TrialState.FAILED, FailureReason.LOST)
    assert stored.detail == "lost 4 times; last: a rank died"
    assert TrialOrder.from_tune(tune.begin().config).number == 1


def test_losses_of_earlier_runs_count(sqlite_database: Database, tmp_path: Path) -> None:
    retries = Retries()
    retries.restore(0, Setbacks(losses=MAX_LOSSES - 1), None, None)
    tune = Tune(sqlite_database, tmp_path, retries=retries)
    tune.give(tune.begin(), TrialReport("failed", reason=FailureReason.LOST, detail="a rank died"))
    [stored] = tune.stored()
    assert (stored.state, stored.losses) == (TrialState.QUEUED, MAX_LOSSES)
    again = tune.begin()
    tune.give(again, measured(10))
    tune.give(again, TrialReport("failed", reason=FailureReason.LOST, detail="a rank died"))
    [stored] = tune.stored()
    assert (stored.state, stored.reason) == (TrialState.FAILED, FailureReason.LOST)


def test_a_trial_that_is_lost_before_it_begins_counts_too(sqlite_database: Database, tmp_path: Path) -> None:
    tune = Tune(sqlite_database, tmp_path)
    config = tune.searcher.suggest("tune-1")
    tune.recorder.on_trial_error(0, [], SimpleNamespace(config=config, last_result={}))
    [stored] = tune.stored()
    assert (stored.state, stored.runs, stored.losses) == (TrialState.QUEUED, 0, 1)


def test_the_same_error_in_three_trials_stops_the_job(sqlite_database: Database, tmp_path: Path) -> None:
    specification = SPECIFICATION.model_copy(update={"budget": Budget(num_trials=9)})
    tune = Tune(sqlite_database, tmp_path, specification=specification)
    errors = ["IndexError: 17 is out of bounds", "KeyError: 'label'", "IndexError: 4 is out of bounds"]
    for error in errors:
        tune.give(tune.begin(), TrialReport("failed", reason=FailureReason.ERROR, detail=error))
    last = tune.begin()
    with pytest.raises(JobImpossible) as impossible:
        tune.give(last, TrialReport("failed", reason=FailureReason.ERROR, detail="IndexError: -2.5e3 is out of bounds"))
    assert str(impossible.value) == "the same error ended trials 0, 2 and 3: IndexError: 17 is out of bounds"
    assert [trial.state for trial in tune.stored()] == [TrialState.FAILED] * 4


def refused(field: str, message: str = "refused by digits-mlp: path '/nowhere' does not exist") -> TrialReport:
    error = InvalidConfig(field, message)
    return TrialReport("failed", reason=FailureReason.ERROR, detail=str(error), refusal=Refusal.of(error))


def test_what_the_workload_says_of_options_that_all_trials_have_stops_the_job_at_once(
    sqlite_database: Database, tmp_path: Path
) -> None:
    tune = Tune(sqlite_database, tmp_path)
    first = tune.begin()
    with pytest.raises(JobImpossible, match=r"^no trial can be built: workload\.options: .* '/nowhere' does not"):
        tune.give(first, refused("workload_options"))
    assert [trial.state for trial in tune.stored()] == [TrialState.FAILED]


def test_an_optimizer_that_is_not_for_the_model_stops_the_job_at_once(
    sqlite_database: Database, tmp_path: Path
) -> None:
    tune = Tune(sqlite_database, tmp_path)
    with pytest.raises(JobImpossible, match=r"^no trial can be built: optimizer\.name: refused"):
        tune.give(tune.begin(), refused("optimizer.name"))


def test_what_it_says_of_options_that_trials_vary_stops_that_trial(sqlite_database: Database, tmp_path: Path) -> None:
    dropout = {"type": "float", "name": "workload.dropout", "low": 0.0, "high": 0.5, "default": 0.1}
    specification = SPECIFICATION.model_copy(
        update={"search_space": {"optimizer": "adamw", "parameters": [dropout]}, "budget": Budget(num_trials=3)}
    )
    tune = Tune(sqlite_database, tmp_path, specification=specification)
    tune.give(tune.begin(), refused("workload_options.dropout"))
    tune.give(tune.begin(), refused("batch_size", "no"))
    assert [trial.state for trial in tune.stored()] == [TrialState.FAILED] * 2
    last = tune.begin()
    with pytest.raises(JobImpossible, match=r"^no trial can be built: workload\.options\.path: refused"):
        tune.give(last, refused("workload_options.path"))  # which they have alike


def test_a_population_that_is_measured_at_its_end_alone_stops_with_its_first_trial(
    sqlite_database: Database, tmp_path: Path
) -> None:
    specification = JobSpecification.model_validate(
        {
            "workload": {"name": "digits-mlp"},
            "budget": {"num_trials": 4},
            "training": {"num_steps": 40, "evaluate_every_epochs": 5.0},
            "baseline": None,
            "pruner": {"name": "pbt"},
        }
    )
    tune = Tune(sqlite_database, tmp_path, specification=specification)
    first = tune.begin()
    with pytest.raises(JobImpossible, match=r"^training.evaluate_every_epochs: 5 epochs are 50 steps, and 'pbt'"):
        tune.give(first, measured(40, kind="completed"))
    assert [trial.state for trial in tune.stored()] == [TrialState.COMPLETED]


def test_a_trial_that_breaks_a_constraint_is_infeasible(sqlite_database: Database, tmp_path: Path) -> None:
    bound = Constraint(metric="peak_memory_bytes", max=1e6)
    tune = Tune(sqlite_database, tmp_path, constraints=[bound])
    trial = tune.begin()
    fits, grown = ({"validation_loss": 0.5, "peak_memory_bytes": peak} for peak in (1e6, 2e6))
    assert tune.give(trial, measured(10, metrics=fits)) == "CONTINUE"
    assert tune.give(trial, measured(20, metrics=grown)) == "STOP"
    tune.give(tune.begin(), measured(40, kind="completed", metrics=grown))
    for stored in tune.stored():
        assert (stored.state, stored.reason) == (TrialState.FAILED, FailureReason.INFEASIBLE)
        assert stored.detail == "peak_memory_bytes is 2e+06, at most 1e+06 is allowed"


class Scripted:
    """A search of one config whose decisions are given; what it pauses goes on if it is `worth` that."""

    def __init__(self, decisions: Mapping[int, Decision], *, worth: bool) -> None:
        self._decisions = decisions
        self._worth = worth
        self._paused: list[int] = []

    def choose(self, number: int, *, may_start: bool) -> Choice:
        return GoOn(self._paused.pop()) if self._worth and self._paused else None

    def begin(self, number: int, parameters: Mapping[str, Any], *, fork: Fork | None = None) -> None: ...

    def until(self, number: int) -> int | None:
        return 20

    def interrupt(self, number: int) -> None: ...

    def finish(self, number: int, outcome: TrialOutcome) -> None: ...

    def report(self, number: int, step: int, value: float) -> Decision:
        decision = self._decisions.get(step, Decision.CONTINUE)
        if decision is Decision.PAUSE:
            self._paused.append(number)
        return decision


def scripted_policy(decisions: Mapping[int, Decision], *, worth: bool = True) -> JobPolicy:
    space = plan_job(SPECIFICATION).spaces[Phase.SEARCH]
    return JobPolicy([SidePlan(Phase.SEARCH, space, 1, lambda: Scripted(decisions, worth=worth))])


def test_a_trial_that_the_pruner_stops_is_pruned(sqlite_database: Database, tmp_path: Path) -> None:
    tune = Tune(sqlite_database, tmp_path, scripted_policy({20: Decision.STOP}))
    trial = tune.begin()
    assert tune.give(trial, measured(10)) == "CONTINUE"
    assert tune.give(trial, measured(20)) == "STOP"
    [stored] = tune.stored()
    assert (stored.state, stored.step, stored.value) == (TrialState.PRUNED, 20, 1 / 20)
    assert isinstance(tune.policy.ask(), Done)


def test_a_trial_that_the_pruner_pauses_waits_and_goes_on(sqlite_database: Database, tmp_path: Path) -> None:
    tune = Tune(sqlite_database, tmp_path, scripted_policy({20: Decision.PAUSE}))
    trial = tune.begin()
    tune.give(trial, measured(10))
    assert tune.give(trial, measured(20)) == "STOP"  # for Tune; it comes back as a new trial
    [stored] = tune.stored()
    assert stored.state is TrialState.QUEUED
    trial = tune.begin()
    assert tune.give(trial, measured(20)) == "CONTINUE"  # the checkpoint's measurement, given again
    tune.give(trial, measured(40, kind="completed"))
    [stored] = tune.stored()
    assert (stored.state, stored.runs) == (TrialState.COMPLETED, 2)
    assert [measurement.step for measurement in stored.measurements] == [10, 20, 40]


def test_a_trial_that_a_user_stops_is_cancelled_at_its_next_measurement(
    sqlite_database: Database, tmp_path: Path
) -> None:
    tune = Tune(sqlite_database, tmp_path)
    trial = tune.begin()
    tune.signals.told_to_stop = frozenset({0})
    tune.recorder.on_step_begin(0, [])
    assert tune.stored()[0].state is TrialState.RUNNING
    assert tune.give(trial, measured(10)) == "STOP"
    [stored] = tune.stored()
    assert (stored.state, stored.detail, stored.step) == (TrialState.CANCELLED, "stopped by a user", 10)
    tune.recorder.on_step_begin(1, [])  # the request may be seen for a moment longer
    assert TrialOrder.from_tune(tune.begin().config).number == 1


def test_a_trial_that_is_lost_or_completes_before_it_can_be_stopped_is_no_trouble(
    sqlite_database: Database, tmp_path: Path
) -> None:
    tune = Tune(sqlite_database, tmp_path)
    lost, completed = tune.begin(), tune.begin()
    tune.signals.told_to_stop = frozenset({0, 1})
    tune.recorder.on_trial_error(0, [], lost)
    tune.give(completed, measured(40, kind="completed"))
    tune.recorder.on_step_begin(0, [])
    assert [trial.state for trial in tune.stored()] == [TrialState.CANCELLED, TrialState.COMPLETED]


def test_a_waiting_trial_that_a_user_stops_is_cancelled_at_once(sqlite_database: Database, tmp_path: Path) -> None:
    tune = Tune(sqlite_database, tmp_path)
    trial = tune.begin()
    tune.recorder.on_trial_error(0, [], trial)
    tune.signals.told_to_stop = frozenset({0})
    tune.recorder.on_step_begin(0, [])
    [stored] = tune.stored()
    assert (stored.state, stored.detail) == (TrialState.CANCELLED, "stopped by a user")
    assert TrialOrder.from_tune(tune.begin().config).number == 1


def test_a_trial_that_waits_for_a_rank_group_is_recalled_when_a_user_stops_it(
    sqlite_database: Database, tmp_path: Path
) -> None:
    tune = Tune(sqlite_database, tmp_path)
    order = TrialOrder.from_tune(tune.searcher.suggest("tune-1") or {})
    assert not tune.recorder.recall(order.number)
    tune.signals.told_to_stop = frozenset({order.number})
    assert tune.recorder.recall(order.number)
    [stored] = tune.stored()
    assert (stored.state, stored.detail, stored.runs) == (TrialState.CANCELLED, "stopped by a user", 0)
    assert TrialOrder.from_tune(tune.begin().config).number == 1
    tune.signals.told_ending = Ending.STOPPED
    with pytest.raises(RunEnded):
        tune.recorder.recall(2)


def test_a_run_that_is_asked_to_end_begins_no_further_trial_but_writes_what_it_has(
    sqlite_database: Database, tmp_path: Path
) -> None:
    tune = Tune(sqlite_database, tmp_path)
    trial = tune.begin()
    tune.give(trial, measured(10))
    with sqlite_database.writing() as session:
        change_budget(session, tune.lease.job_id, {"num_trials": 5}, now=datetime.now(UTC))
    with pytest.raises(RunEnded) as ended:
        tune.begin()
    assert ended.value.ending is Ending.ASKED
    tune.journal.flush()
    [stored] = tune.stored()
    assert [measurement.step for measurement in stored.measurements] == [10]


def test_a_paused_trial_that_is_not_worth_going_on_with_is_pruned(sqlite_database: Database, tmp_path: Path) -> None:
    tune = Tune(sqlite_database, tmp_path, scripted_policy({20: Decision.PAUSE}, worth=False))
    (tmp_path / "0").mkdir()
    tune.give(tune.begin(), measured(20))
    assert tune.stored()[0].state is TrialState.QUEUED
    with pytest.raises(RunEnded):
        tune.searcher.suggest("tune-1")
    [stored] = tune.stored()
    assert (stored.state, stored.value, stored.runs) == (TrialState.PRUNED, 1 / 20, 1)
    assert not (tmp_path / "0").exists()


@pytest.mark.parametrize("loss", ["cancelled", "claimed by another worker"])
def test_a_run_that_lost_its_lease_ends_and_writes_nothing_more(
    sqlite_database: Database, tmp_path: Path, loss: str
) -> None:
    tune = Tune(sqlite_database, tmp_path)
    trial = tune.begin()
    tune.give(trial, measured(10))
    later = datetime.now(UTC) + timedelta(minutes=5)
    with sqlite_database.writing() as session:
        if loss == "cancelled":
            cancel_job(session, tune.lease.job_id, now=later)
        else:
            other = register_worker(session, host="there", pid=2, now=later)
            claim_job(session, other, lease_seconds=60, now=later)
    with pytest.raises(RunEnded) as ended:
        tune.give(trial, measured(20))
    assert ended.value.ending is Ending.LEASE_LOST
    [stored] = tune.stored()
    assert [measurement.step for measurement in stored.measurements] == [10]


def test_the_run_ends_at_the_next_turn_of_tunes_loop(sqlite_database: Database, tmp_path: Path) -> None:
    tune = Tune(sqlite_database, tmp_path)
    tune.recorder.on_step_begin(0, [])
    tune.signals.told_ending = Ending.BUDGET_SPENT
    with pytest.raises(RunEnded) as ended:
        tune.recorder.on_step_begin(1, [])
    assert ended.value.ending is Ending.BUDGET_SPENT


def test_a_measurement_is_stored_before_its_trial_goes_on(sqlite_database: Database, tmp_path: Path) -> None:
    tune = Tune(sqlite_database, tmp_path)
    trial = tune.begin()
    for step in (10, 20):
        tune.give(trial, measured(step))
        assert [measurement.step for measurement in tune.stored()[0].measurements][-1] == step


def test_shortly_before_the_time_limit_no_trial_is_started(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("service.scheduler.tune.adapters.time.monotonic", lambda: clock[0])
    tune = Tune(sqlite_database, tmp_path)
    trial = tune.begin()
    for step in (10, 20):
        clock[0] += 5.0
        tune.give(trial, measured(step))  # a whole trial of 40 steps takes 20 seconds
    tune.signals.told_seconds_left = 31.0
    tune.recorder.on_step_begin(0, [])
    assert TrialOrder.from_tune(tune.begin().config).number == 1
    tune.give(trial, measured(40, kind="completed"))
    tune.signals.told_seconds_left = 29.0
    tune.recorder.on_step_begin(1, [])
    assert tune.searcher.suggest("tune-2") is None
