"""The judgement of a trial that leaves Tune: completed, pruned, paused, finally failed, or queued again."""

from __future__ import annotations

import logging
import math
from typing import assert_never

from search_spaces.parameters import sectioned
from service.domain import FailureReason, TrialState
from service.errors import InvalidInput
from service.scheduler.policy.constraints import violation
from service.scheduler.policy.decisions import Decisions
from service.scheduler.policy.feasibility import Feasibility
from service.scheduler.policy.protocol import Decision
from service.scheduler.policy.retries import Retries, divided
from service.scheduler.tune.messages import TrialReport
from service.scheduler.tune.open_trials import OpenTrials, TrialEnd
from service.scheduler.tune.run_end import JobImpossible
from service.specification.external.messages import MAX_DETAIL_LENGTH
from service.specification.planning import JobPlan, check_population_is_measured
from trainers.config import MAX_METRIC, Diverged
from trainers.config_part import Refusal, RefusedPart

logger = logging.getLogger(__name__)


class Judgement:
    """Decides from its last report how a trial ended."""

    def __init__(
        self, plan: JobPlan, trials: OpenTrials, decisions: Decisions, retries: Retries, feasibility: Feasibility
    ) -> None:
        self._plan = plan
        self._trials = trials
        self._decisions = decisions
        self._retries = retries
        self._feasibility = feasibility
        self._hopeless: str | None = None
        """The reason why no other trial of the job would fare better than one that has ended, for a person."""

    def of_report(self, number: int, report: TrialReport) -> TrialEnd:
        """The end of a trial that gave its last report, or that the pruner stopped at one."""
        if report.measurement is not None:
            undecided = self._decisions.why_undecided(report.measurement.metrics)
            if undecided is not None:
                return self.of_failure(number, FailureReason.ERROR, undecided)
            objective = self._decisions.unusable(report.measurement.metrics)
            if objective is not None:  # where others train it: our own training ends before it measures such a step
                value = report.measurement.metrics[objective]
                fault = f"{value:g}, beyond {MAX_METRIC:g}" if math.isfinite(value) else "not finite"
                diverged = Diverged(report.measurement.step, f"{objective} is {fault}")
                return self.of_failure(number, FailureReason.DIVERGED, str(diverged))
            broken = violation(
                self._plan.specification.constraints, report.measurement.metrics, is_last=report.kind == "completed"
            )
            if broken is not None:
                return TrialEnd(TrialState.FAILED, FailureReason.INFEASIBLE, broken)
        if report.kind != "failed":
            self._feasibility.fitted(number)
        match report.kind:
            case "completed":
                assert report.measurement is not None
                self._check_population(report)
                self._decisions.report(number, report.measurement)
                return TrialEnd(TrialState.COMPLETED, values=self._decisions.last_values(number))
            case "failed":
                assert report.reason is not None
                if report.refusal is not None and self._no_other_could_be_built(report.refusal):
                    told = (report.detail or "").replace("workload_options", "workload.options", 1)  # the job's name
                    self._hopeless = f"no trial can be built: {told}"
                return self.of_failure(
                    number,
                    report.reason,
                    report.detail or "",
                    can_begin_anew=report.begins_anew,
                    exit_status=report.exit_status,
                )
            case "measured" if self._decisions.last_decision(number) is Decision.PAUSE:
                return TrialEnd(
                    TrialState.QUEUED,
                    detail="paused: others are tried before it goes on",
                    setbacks=self._retries.setbacks(number),
                    policy_knows=True,
                )
            case "measured":
                return TrialEnd(TrialState.PRUNED)

    def of_failure(
        self,
        number: int,
        reason: FailureReason,
        detail: str,
        *,
        can_begin_anew: bool = False,
        exit_status: int | None = None,
    ) -> TrialEnd:
        """The end of a trial that failed, or its return to the queue."""
        config = self._trials.config(number)
        smaller = divided(config, world_size=self._plan.specification.resources.workers_per_trial)
        verdict = self._retries.judge(
            number,
            reason,
            detail[:MAX_DETAIL_LENGTH],  # as it will be stored, so that a later run finds the same errors alike
            step=self._decisions.last_step(number),
            can_divide=smaller is not None,
            can_begin_anew=can_begin_anew,
            exit_status=exit_status,
        )
        if reason is FailureReason.OUT_OF_MEMORY:
            self._feasibility.ran_out(number, config)
        if verdict.reason is not None:
            return TrialEnd(TrialState.FAILED, verdict.reason, verdict.detail)
        return TrialEnd(
            TrialState.QUEUED,
            detail=verdict.detail,
            setbacks=self._retries.setbacks(number),
            config=smaller if verdict.divides else None,
            begins_anew=verdict.begins_anew,
        )

    def _check_population(self, report: TrialReport) -> None:
        """Learns from a completed trial how long an epoch is, and checks the population against it."""
        measured = report.measurement
        assert measured is not None
        if self._plan.population is None or measured.epoch <= 0:
            return
        num_train_examples = round(measured.step * self._plan.length.batch_size / measured.epoch)
        try:
            check_population_is_measured(self._plan, num_train_examples)
        except InvalidInput as error:
            self._hopeless = str(error)

    def _no_other_could_be_built(self, refusal: Refusal) -> bool:
        """True if the faulty part of a trial's config belongs to the workload or is its side's optimizer, and is the
        same for all trials."""
        varied = {
            name
            for space in self._plan.spaces.values()
            for of, name in (sectioned(parameter.name) for parameter in space.parameters)
            if of == "workload"
        }
        match refusal.part:
            case RefusedPart.WORKLOAD:
                return True
            case RefusedPart.OPTIONS if refusal.option:
                return refusal.option not in varied
            case RefusedPart.OPTIONS | RefusedPart.OPTIMIZER:  # the model has nothing that it steps
                return not varied
            case RefusedPart.ARGUMENTS | RefusedPart.OTHER:
                return False
        assert_never(refusal.part)

    def stop_if_hopeless(self) -> None:
        """Raises: JobImpossible: the same error ended too many trials, or would end all of them."""
        failure = self._hopeless or self._retries.why_to_stop()
        if failure is not None:
            raise JobImpossible(failure)
