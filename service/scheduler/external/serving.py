"""The answers of a run to the clients that train its job's trials: which trial each trains, and whether it continues.

A turn reads the waiting requests from SQL, in their order, and answers each in the same transaction that writes its
effects. If a run dies in between, the request is unchanged, and the next run, restored from SQL, answers it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from pydantic import TypeAdapter
from ulid import ULID

from search_spaces import Scalar
from service.clock import Clock
from service.domain import FailureReason, TrialState
from service.scheduler.policy.constraints import violation
from service.scheduler.policy.decisions import Decisions
from service.scheduler.policy.in_common import InCommon
from service.scheduler.policy.job_policy import JobPolicy
from service.scheduler.policy.protocol import Decision, Resume
from service.scheduler.policy.retries import Retries
from service.scheduler.policy.time_limit import Pace
from service.scheduler.tune.journal import Journal
from service.scheduler.tune.judgement import Judgement
from service.scheduler.tune.messages import TrialOrder, TrialReport
from service.scheduler.tune.open_trials import OpenTrials, TrialEnd
from service.scheduler.tune.orders import Orders
from service.scheduler.tune.run_end import RunEnded, Signals
from service.specification.external.messages import End, ExternalDecision, Report, RunAnswer, Suggest, SuggestedTrial
from service.specification.planning import JobPlan
from service.store.models import ExternalRequest, TrialLease
from service.store.repositories import ExternalRequestRepository, TrialLeaseRepository, TrialRepository
from service.store.session import Session
from service.use_cases import run
from service.use_cases.transitions import STOPPED

logger = logging.getLogger(__name__)

AT_ONCE = 200
"""Requests answered in one turn."""
STILL_ASKED_SECONDS = 20.0
"""A client that has not asked again for this long is gone, and gets no trial: twice the polling time of our client."""
KEPT = timedelta(days=1)
"""The time for which answers are kept, for clients that ask again with the same key."""
LEASE_POLL = timedelta(seconds=1)

_PARAMETERS: TypeAdapter[dict[str, Scalar]] = TypeAdapter(dict[str, Scalar])


@dataclass(slots=True)
class _Held:
    """A trial that a client has."""

    lease: TrialLease
    num_steps: int
    is_heard: bool
    """True if this run has heard from the client."""


class Serving:
    """Answers the clients of one job, in one thread."""

    def __init__(
        self,
        plan: JobPlan,
        journal: Journal,
        policy: JobPolicy | InCommon,
        trials: OpenTrials,
        orders: Orders,
        decisions: Decisions,
        judgement: Judgement,
        retries: Retries,
        signals: Signals,
        pace: Pace,
        *,
        clock: Clock,
    ) -> None:
        """Prepares the run's answers; `begin` reads which clients there are."""
        external = plan.specification.external
        assert external is not None
        self._plan = plan
        self._journal = journal
        self._policy = policy
        self._trials = trials
        self._orders = orders
        self._decisions = decisions
        self._judgement = judgement
        self._retries = retries
        self._signals = signals
        self._pace = pace
        self._clock = clock
        self._lease_time = timedelta(seconds=external.lease_seconds)
        self._job_id = journal.lease.job_id
        self._held: dict[int, _Held] = {}
        self._ready: deque[TrialOrder] = deque()
        """Trials that wait for a client."""
        self._released_at: dict[int, int] = {}
        """The steps at which clients gave trials back before their ends."""
        self._leases_seen_at = clock()

    def begin(self) -> None:
        """Reads which trials clients have from earlier runs; each client has the full time of a lease to report again.

        Raises:
            RunEnded, JobImpossible: as `turn`.
        """
        now = self._clock()
        leases = {lease.number: lease for lease in self._journal.read(self._leases)}
        for _ in range(self._policy.num_interrupted):
            asked = self._policy.ask()
            assert isinstance(asked, Resume), f"an interrupted trial comes first, got {asked}"
            order = self._orders.order(asked)
            lease = None if order is None else leases.pop(order.number, None)
            if order is None:
                continue
            if lease is None:
                self._ready.append(order)
                continue
            lease.expires_at = now if lease.is_released else now + self._lease_time
            self._held[order.number] = _Held(lease, order.config.num_steps, is_heard=False)
            self._journal.keep(partial(self._start, number=order.number, now=now))
        for number in leases:  # the leases of trials that have ended, or that this run pauses
            self._journal.keep(partial(self._end_lease, number=number))
        self._journal.keep(
            lambda session: ExternalRequestRepository(session).forget_answered(self._job_id, before=now - KEPT)
        )
        self._journal.flush()

    def flush(self) -> None:
        """Writes everything received. Raises: RunEnded: the job no longer belongs to this run."""
        self._journal.flush()

    def turn(self) -> bool:
        """Answers waiting requests, and takes back trials whose clients are gone; True if there was anything to answer.

        Raises:
            RunEnded: something ends the run, e.g. that nothing is left to try.
            JobImpossible: the job cannot be run any further.
        """
        ending = self._signals.ending()
        if ending is not None:
            raise RunEnded(ending)
        if self._pace.is_time_to_close(self._signals.seconds_left()):
            self._policy.close()
        self._trials.stop_those_asked()
        for stopped in [ready for ready in self._ready if self._trials.recall(ready.number)]:
            self._ready.remove(stopped)
        now = self._clock()
        requests = self._journal.read(partial(self._waiting, now=now))
        num_answered = sum(self._answer(request, now) for request in requests)
        if num_answered:
            self._journal.flush()
        if now - self._leases_seen_at >= LEASE_POLL:
            self._leases_seen_at = now
            self._take_back(now)
        if not self._held and not self._ready:
            # No trial is running that the search could wait for: asking for its next one shows whether it is over.
            order = self._orders.next(self._policy)
            if order is not None:
                self._ready.append(order)
        return num_answered > 0

    def _waiting(self, session: Session, now: datetime) -> list[ExternalRequest]:
        found = ExternalRequestRepository(session).waiting(
            self._job_id, suggestions_asked_after=now - timedelta(seconds=STILL_ASKED_SECONDS), limit=AT_ONCE
        )
        session.expunge_all()
        return found

    def _leases(self, session: Session) -> Sequence[TrialLease]:
        found = TrialLeaseRepository(session).of_job(self._job_id)
        session.expunge_all()
        return found

    def _answer(self, request: ExternalRequest, now: datetime) -> bool:
        """Answers a request, if there is an answer yet; returns whether there is."""
        match request.content:
            case Suggest() as asked:
                return self._suggest(request.id, asked, now)
            case Report() as report:  # an `End` is one
                self._take_in(request, report, now)
                return True

    def _suggest(self, request_id: int, asked: Suggest, now: datetime) -> bool:
        at_once = self._plan.specification.resources.parallel_trials
        if at_once is not None and len(self._held) >= at_once:
            return False
        order = self._ready.popleft() if self._ready else self._orders.next(self._policy)
        if order is None:
            return False
        trial = self._journal.read(lambda session: TrialRepository(session).get(self._job_id, order.number))
        lease = TrialLease(
            job_id=self._job_id,
            number=order.number,
            name=f"lease_{ULID()}",
            client=asked.client,
            begun_at=now,
            begun_seconds=trial.seconds,
            expires_at=now + self._lease_time,
        )
        suggested = SuggestedTrial(
            number=order.number,
            lease=lease.name,
            lease_seconds=self._lease_time.total_seconds(),
            phase=trial.phase,
            parameters=dict(_PARAMETERS.validate_python(trial.parameters)),
            config=order.config.to_json(),
            begins_at_step=trial.step,
            pauses_at_step=order.until_step,
        )
        self._journal.keep(partial(self._start, number=order.number, now=now))
        self._journal.keep(partial(self._put_lease, lease=lease))
        self._reply(request_id, RunAnswer(trial=suggested), now)
        self._journal.flush()
        self._held[order.number] = _Held(lease, order.config.num_steps, is_heard=True)
        return True

    def _take_in(self, request: ExternalRequest, report: Report, now: datetime) -> None:
        request_id, number = request.id, request.number
        assert number is not None
        held = self._held.get(number)
        if held is None or held.lease.name != report.lease:
            why = "the lease has ended: nothing came for too long, or the trial was ended by others"
            self._reply(request_id, RunAnswer(decision=ExternalDecision.STOP, why=why), now)
            return
        held.is_heard = True
        up_to, end = self._measure(number, held, report, reported_at=request.created_at)
        if end is None and isinstance(report, End):
            end = self._end_of(number, held, report)
            if end is None:
                done = self._decisions.last_step(number)
                why = f"trial {number} was measured up to step {done}, and is complete after {held.num_steps}"
                self._reply(request_id, RunAnswer(recorded_up_to_step=up_to, why=why, conflict=True), now)
                return
        if end is None and number in self._signals.to_stop():
            end = TrialEnd(TrialState.PRUNED)  # the user's request turns it into cancelled
        if end is None:
            if not held.lease.is_released:
                held.lease.expires_at = now + self._lease_time
            self._journal.keep(partial(self._renew, number=number, expires_at=held.lease.expires_at))
            self._reply(request_id, RunAnswer(recorded_up_to_step=up_to), now)
            return
        is_paused = end.state is TrialState.QUEUED and number not in self._signals.to_stop()
        decision = ExternalDecision.PAUSE if is_paused else ExternalDecision.STOP
        why = STOPPED if number in self._signals.to_stop() else end.detail or f"the trial is {end.state}"
        self._reply(request_id, RunAnswer(decision=decision, recorded_up_to_step=up_to, why=why[:2000]), now)
        self._end(number, end)

    def _measure(
        self, number: int, held: _Held, report: Report, *, reported_at: datetime
    ) -> tuple[int | None, TrialEnd | None]:
        """Records measurements of a trial, up to the one at which its client has to give it up, if there is one.
        Returns the step of the last recorded measurement, and that end.

        Args:
            reported_at: earlier than now if the report had to wait, for instance while the job was paused: the trial
                may not have been trained meanwhile.
        """
        up_to: int | None = None
        with_client = (reported_at - held.lease.begun_at).total_seconds()
        so_far = held.lease.begun_seconds + max(0.0, with_client)  # the clocks of two machines
        config = self._trials.config(number)
        length = self._plan.length.of_stored(num_steps=config.num_steps, batch_size=config.batch_size)
        for measured in report.measurements:
            measurement = measured.to_measurement(seconds=so_far)
            up_to = measurement.step
            self._journal.note(number, measurement)
            self._trials.measured(number, measurement)
            done = up_to if length is None else length.done_at(up_to)
            self._pace.measured(number, done, optimizer=config.optimizer.name)
            is_last = up_to >= held.num_steps
            told = TrialReport("completed" if is_last else "measured", measurement)
            if is_last or self._is_over(number, told):
                return up_to, self._judgement.of_report(number, told)
        return up_to, None

    def _is_over(self, number: int, report: TrialReport) -> bool:
        """True if a trial should stop after a measurement that is not its last."""
        assert report.measurement is not None
        metrics = report.measurement.metrics
        if self._decisions.why_undecided(metrics) is not None or self._decisions.unusable(metrics) is not None:
            return True
        if violation(self._plan.specification.constraints, metrics, is_last=False) is not None:
            return True
        return self._decisions.report(number, report.measurement) is not Decision.CONTINUE

    def _end_of(self, number: int, held: _Held, asked: End) -> TrialEnd | None:
        """The end that a client reports; None: its trial is not complete."""
        match asked.outcome:
            case "failed":
                assert asked.reason is not None
                detail = asked.detail or f"its client says no more than {asked.reason}"
                return self._judgement.of_failure(number, FailureReason(asked.reason), detail)
            case "released":
                who = held.lease.client or "its client"
                told = f": {asked.detail}" if asked.detail else ""
                done = self._decisions.last_step(number)
                if self._released_at.get(number) == done:
                    # It would be given again and again to clients that never reach its end.
                    detail = f"released by {who} at step {done} of {held.num_steps} again{told}"
                    return self._judgement.of_failure(number, FailureReason.LOST, detail)
                self._released_at[number] = done
                return self._back_in_queue(number, f"released by {who}{told}; another one may go on")
            case "completed":
                return None  # the measurement of its last step completes it

    def _back_in_queue(self, number: int, detail: str) -> TrialEnd:
        return TrialEnd(TrialState.QUEUED, detail=detail, setbacks=self._retries.setbacks(number))

    def _take_back(self, now: datetime) -> None:
        """Ends the leases of clients that no longer report."""
        for number, held in list(self._held.items()):
            if held.lease.is_released:
                detail = "its client left when the job was paused; another one may go on"
                self._end(number, self._back_in_queue(number, detail))
            elif held.lease.expires_at < now and not held.is_heard:
                # The client may have left when a read-only request told it to pause.
                detail = "its client has said nothing since the job went on; another one may go on"
                self._end(number, self._back_in_queue(number, detail))
            elif held.lease.expires_at < now:
                who = held.lease.client or "its client"
                detail = f"{who} has reported nothing for {self._lease_time.total_seconds():g} s"
                self._end(number, self._judgement.of_failure(number, FailureReason.LOST, detail))

    def _end(self, number: int, end: TrialEnd) -> None:
        del self._held[number]
        self._journal.keep(partial(self._end_lease, number=number))
        self._trials.end(number, end)
        self._pace.stopped(number)
        self._judgement.stop_if_hopeless()

    def _reply(self, request_id: int, answer: RunAnswer, now: datetime) -> None:
        self._journal.keep(lambda session: ExternalRequestRepository(session).answer(request_id, answer, now=now))

    def _start(self, session: Session, *, number: int, now: datetime) -> None:
        run.start_trial(session, self._journal.lease, number, now=now)

    def _put_lease(self, session: Session, *, lease: TrialLease) -> None:
        TrialLeaseRepository(session).put(lease)

    def _renew(self, session: Session, *, number: int, expires_at: datetime) -> None:
        TrialLeaseRepository(session).renew(self._job_id, number, expires_at=expires_at)

    def _end_lease(self, session: Session, *, number: int) -> None:
        TrialLeaseRepository(session).remove(self._job_id, number)
