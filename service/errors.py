"""What can go wrong for a caller of the service, named for the situation. No HTTP in here: the API maps these."""

from __future__ import annotations


class ServiceError(Exception):
    """An error whose message is meant for the user."""


class NotFound(ServiceError):
    """No such thing."""

    def __init__(self, kind: str, identifier: object) -> None:
        super().__init__(f"no {kind} {identifier!r}")
        self.kind = kind
        self.identifier = identifier


class InvalidInput(ServiceError):
    """The request names something impossible; `field` is the path of the offending field, e.g. `budget.num_trials`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class Conflict(ServiceError):
    """The request contradicts the present state."""


class JobAlreadyFinished(Conflict):
    def __init__(self, job_id: str, state: str) -> None:
        super().__init__(f"job {job_id!r} has already finished: {state}")
        self.job_id = job_id
        self.state = state


class IdempotencyKeyReused(ServiceError):
    """The same Idempotency-Key came with another request body."""

    def __init__(self, key: str) -> None:
        super().__init__(f"Idempotency-Key {key!r} was already used with another request body")
        self.key = key


class LeaseLost(ServiceError):
    """The job no longer belongs to this run: its lease went to another worker, or the job left the running state."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the lease of job {job_id!r} is lost")
        self.job_id = job_id
