"""A policy that counts in examples, driven in steps: equal shares of every trial's own schedule, and restored alike."""

from __future__ import annotations

from typing import Any

import pytest

from search_spaces.parameters import Scalar
from service.domain import Phase, TrialState
from service.scheduler.policy.in_common import InCommon
from service.scheduler.policy.job_policy import JobPolicy
from service.scheduler.policy.planned_policy import make_policy
from service.scheduler.policy.protocol import Decision, Done, GiveUp, Resume, Start, TrialHistory, Wait
from service.specification.length import BATCH_SIZE
from service.specification.planning import JobPlan, plan_job
from tests.support.service.scenarios import specification

NUM_EXAMPLES, EVERY = 4000, 400


def plan(**fields: Any) -> JobPlan:
    space = {
        "optimizer": "shampoo",
        "parameters": [
            {"type": "float", "name": "lr", "low": 1e-4, "high": 1e-2, "scale": "log"},
            {"type": "categorical", "name": BATCH_SIZE, "choices": [25, 48, 100]},
        ],
    }
    return plan_job(
        specification(
            search_space=space,
            training={"num_examples": NUM_EXAMPLES, "evaluate_every_examples": EVERY},
            budget={"num_trials": 12},
            **fields,
        )
    )


class Driver:
    """Trains what a policy asks for, one trial at a time, in steps, and keeps what a database would."""

    def __init__(self, plan: JobPlan) -> None:
        self.plan = plan
        self.rows: dict[int, dict[str, Any]] = {}
        self.pauses: dict[int, list[tuple[int, int]]] = {}
        """By trial: the batch size and the step of each of its pauses."""

    def policy(self) -> JobPolicy | InCommon:
        policy = make_policy(self.plan)
        policy.restore([TrialHistory(**row) for row in self.rows.values()])
        return policy

    def drive(self, policy: JobPolicy | InCommon, num_asked: int) -> JobPolicy | InCommon:
        for _ in range(num_asked):
            match policy.ask():
                case GiveUp(number=number):
                    self._end(policy, number, TrialState.PRUNED)
                case (Start() | Resume()) as asked:
                    if isinstance(asked, Start):
                        self.rows[asked.number] = {
                            "number": asked.number,
                            "side": asked.side,
                            "parameters": asked.parameters,
                            "state": TrialState.QUEUED,
                            "curve": (),
                            "repeats": asked.repeats,
                        }
                    self._train(policy, asked)
                case Wait() | Done():
                    break
        return policy

    def _train(self, policy: JobPolicy | InCommon, asked: Start | Resume) -> None:
        row, parameters = self.rows[asked.number], dict[str, Scalar](asked.parameters)
        config = self.plan.trial_config(asked.side, parameters)
        curve = list(row["curve"])
        step = curve[-1][0] if curve else 0
        while True:
            following = -(-EVERY * (step * config.batch_size // EVERY + 1) // config.batch_size)
            if asked.until is not None and step < asked.until:
                following = min(following, asked.until)
            step = min(config.num_steps, following)
            value = abs(float(parameters["lr"] or 0) - 1e-3) + config.batch_size / 1e4 + 1 / step
            curve.append((step, value))
            row["curve"] = tuple(curve)
            decision = policy.report(asked.number, step, value)
            if decision is Decision.PAUSE:
                assert asked.until == step
                self.pauses.setdefault(asked.number, []).append((config.batch_size, step))
                return
            if step == config.num_steps or decision is Decision.STOP:
                state = TrialState.COMPLETED if step == config.num_steps else TrialState.PRUNED
                row["values"] = (value,)
                self._end(policy, asked.number, state)
                return

    def _end(self, policy: JobPolicy | InCommon, number: int, state: TrialState) -> None:
        self.rows[number]["state"] = state
        policy.tell(number, state, self.rows[number].get("values", ()))


def test_trials_pause_at_equal_shares_of_their_own_schedules() -> None:
    driver = Driver(plan())
    driver.drive(driver.policy(), 1000)
    assert {batch_size for paused in driver.pauses.values() for batch_size, _ in paused} == {25, 48, 100}
    for at_rung in (0, 1):
        paused = [own[at_rung] for own in driver.pauses.values() if len(own) > at_rung]
        # There is a number of examples that each reached in the very step of its pause.
        assert max((step - 1) * batch_size for batch_size, step in paused) < min(
            step * batch_size for batch_size, step in paused
        )
    assert driver.policy().is_done
    ended = [row for row in driver.rows.values() if row["state"] is TrialState.COMPLETED]
    assert {driver.plan.trial_config(row["side"], row["parameters"]).num_steps for row in ended} == {
        row["curve"][-1][0] for row in ended
    }


@pytest.mark.parametrize("fields", [{"pruner": {"name": "asha"}}, {"sampler": {"name": "random"}}])
def test_a_restored_policy_goes_on_as_it_would_have(fields: dict[str, Any]) -> None:
    quiet, interrupted = Driver(plan(**fields)), Driver(plan(**fields))
    quiet.drive(quiet.policy(), 1000)
    for _ in range(1000):
        if interrupted.drive(interrupted.policy(), 5).is_done:
            break
    assert interrupted.rows == quiet.rows
    assert {row["side"] for row in quiet.rows.values()} == {Phase.SEARCH, "adamw"}


def test_a_pruner_judges_after_equally_many_examples() -> None:
    driver = Driver(plan(pruner={"name": "asha"}))
    driver.drive(driver.policy(), 1000)
    pruned = [row for row in driver.rows.values() if row["state"] is TrialState.PRUNED]
    assert pruned
    for row in pruned:
        batch_size = row["parameters"][BATCH_SIZE]
        assert row["curve"][-1][0] in {-(-1200 // batch_size), -(-3200 // batch_size)}
