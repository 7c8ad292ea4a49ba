"""The errors that a caller of the service can meet, named for the situation. No HTTP in here: the API maps these."""

from __future__ import annotations

from collections.abc import Sequence

from search_spaces.nearest import did_you_mean

MAX_NAMES = 20
"""Shown of those there are."""


class ServiceError(Exception):
    """An error whose message is meant for the user."""

    @property
    def faults(self) -> Sequence[str]:
        """The faults, each by itself."""
        return (str(self),)


class ServiceBusy(ServiceError):
    """The service has had no time for a request; the same request may do later."""

    def __init__(self, num_at_once: int, waited_seconds: float, *, what: str = "requests") -> None:
        ended = f"none of them ended within {waited_seconds:g} s" if waited_seconds else "others wait already"
        super().__init__(f"the service works on {num_at_once} {what} at once, and {ended}")


class NotDoneYet(ServiceBusy):
    """A request takes longer than clients wait. The service goes on with it, and answers the same request later."""

    def __init__(self, waited_seconds: float) -> None:
        told = f"it takes more than {waited_seconds:g} s and goes on: ask again for what comes of it"
        ServiceError.__init__(self, told)


class NotFound(ServiceError):
    """No such thing."""

    def __init__(self, kind: str, identifier: object) -> None:
        super().__init__(f"no {kind} {identifier!r}")
        self.kind = kind
        self.identifier = identifier


class NoRecommendation(NotFound):
    """A job recommends nothing, or not yet."""

    def __init__(self, job_id: str, state: str, *, failure: str | None) -> None:
        super().__init__(f"recommendation of the {state} job", job_id)
        if failure is not None:
            self.args = (f"{self}: {failure}",)


class JobNotFound(NotFound):
    """No such job, or none of the caller's project."""

    def __init__(self, job_id: str) -> None:
        super().__init__("job", job_id)


class TrialNotFound(NotFound):
    """No such trial of the job."""

    def __init__(self, job_id: str, number: object) -> None:
        super().__init__("trial", f"{job_id}/{number}")


class UnknownName(ServiceError):
    """Something is asked for by a name that nothing has; `known` are the names there are, the most likely one first.

    Args:
        field: how it was asked for, e.g. `model`.
        hint: what else the name is, for a person.
    """

    def __init__(self, field: str, name: str, known: Sequence[str], *, hint: str = "") -> None:
        names = ", ".join(known[:MAX_NAMES]) + (", ..." if len(known) > MAX_NAMES else "")
        told = f": {hint}" if hint else did_you_mean(name, known)
        self.message = f"no {field} is called {name!r} (known: {names or 'none'}){told}"
        super().__init__(self.message)
        self.field, self.name, self.known = field, name, tuple(known)


class InvalidInput(ServiceError):
    """The request names something impossible; `field` is the path of the offending field, e.g. `budget.num_trials`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class TooFewTrials(InvalidInput):
    """The budget has fewer trials than the job needs whatever else it asks for."""

    def __init__(self, message: str) -> None:
        super().__init__("budget.num_trials", message)


class UnknownParameter(InvalidInput):
    """The query of the request has a parameter that its route has not; `field` is the name."""


class CodeForbidden(InvalidInput):
    """The request names code, and whoever sends it may not."""


class WorkloadNotDescribed(ServiceError):
    """The process that was to describe the workload, or its model, was killed or too slow; the request may do later."""


class CheckpointsOutOfReach(ServiceError):
    """The checkpoints cannot be read now; the request may do later."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the checkpoints cannot be read now: {why}")


class Conflict(ServiceError):
    """The request contradicts the present state."""


class JobAlreadyFinished(Conflict):
    def __init__(self, job_id: str, state: str) -> None:
        super().__init__(f"job {job_id!r} has already finished: {state}")
        self.job_id = job_id
        self.state = state


class JobNotFinished(Conflict):
    """A job that has not ended cannot be deleted."""

    def __init__(self, job_id: str, state: str) -> None:
        super().__init__(f"job {job_id!r} is {state}: only one that has ended can be deleted; cancel it first")
        self.job_id = job_id
        self.state = state


class TrialAlreadyFinished(Conflict):
    def __init__(self, job_id: str, number: int, state: str) -> None:
        super().__init__(f"trial {number} of job {job_id!r} has already ended: {state}")
        self.job_id, self.number, self.state = job_id, number, state


class TrialNotRetriable(Conflict):
    def __init__(self, job_id: str, number: int, state: str) -> None:
        super().__init__(
            f"trial {number} of job {job_id!r} is {state}: only a pruned, failed or cancelled one can be tried again"
        )
        self.job_id, self.number, self.state = job_id, number, state


class ForkNotRetriable(Conflict):
    """A trial that began from another one's checkpoint is not tried again: that checkpoint is gone."""

    def __init__(self, job_id: str, number: int, *, parent: int, step: int) -> None:
        super().__init__(
            f"trial {number} of job {job_id!r} began from the checkpoint of trial {parent} at step {step}, which is "
            "gone, and its own went when it ended: it cannot be tried again. Its parameters can be proposed, to be "
            "trained from the first step"
        )
        self.job_id, self.number, self.parent, self.step = job_id, number, parent, step


class BudgetSpent(Conflict):
    """A finished job cannot go on without more budget; the message says what to raise."""

    def __init__(self, job_id: str, state: str, why: str) -> None:
        super().__init__(f"job {job_id!r} has {state} and cannot go on: {why}")
        self.job_id, self.state = job_id, state


class PreconditionFailed(ServiceError):
    """The thing to be changed is no longer as the caller last saw it."""

    def __init__(self, tag: str) -> None:
        super().__init__(f"it has been changed since it had the ETag {tag}: read it again, and decide anew")
        self.tag = tag


class TrialsTrainedHere(Conflict):
    """Clients ask for trials of a job that the service trains itself."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"job {job_id!r} is trained by the service: only one that was submitted with `external` hands trials out"
        )
        self.job_id = job_id


class TrialNotComplete(Conflict):
    """A client says that a trial is complete, and its last step has not been measured."""


class IdempotencyKeyReused(ServiceError):
    """The same Idempotency-Key came with another request body."""

    def __init__(self, key: str) -> None:
        super().__init__(f"Idempotency-Key {key!r} was already used with another request body")
        self.key = key


class ScopeMissing(ServiceError):
    """The caller's token does not give the right that is asked of it."""

    def __init__(self, scope: str, what: str = "this") -> None:
        super().__init__(f"{what} needs a token with the scope '{scope}'")
        self.scope = scope


class QuotaExceeded(ServiceError):
    """The project has used up what it may have; `quota` is the field of the project that says how much that is."""

    def __init__(self, project: str, quota: str, *, limit: float, used: float) -> None:
        self.way_out = f"`shampoo-tuner project set {project}` changes that"
        super().__init__(
            f"project {project!r} has used {used:g} of the {limit:g} that {quota} allows it; {self.way_out}"
        )
        self.project, self.quota, self.limit, self.used = project, quota, limit, used


class LeaseLost(ServiceError):
    """The job no longer belongs to this run: its lease went to another worker, or the job left the running state."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the lease of job {job_id!r} is lost")
        self.job_id = job_id


class RunAskedToEnd(ServiceError):
    """The job's run is asked to end, and may begin no further trial."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the run of job {job_id!r} is asked to end")
        self.job_id = job_id
