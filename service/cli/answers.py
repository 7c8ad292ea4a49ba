"""The answer to `recommend NAME`: a name is tried as a model's, then as a workload's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.cli.asking import say
from service.client import ApiError, Client
from service.errors import ServiceError

if TYPE_CHECKING:
    from service.api.schemas.recommendations import RecommendationRead

NOT_FOUND = 404


def best_by_name(client: Client, name: str) -> RecommendationRead:
    """The best answer for the user's model of this name, or else for the workload; says which on standard error, and
    how many different models a workload's answers are for.

    Raises:
        ServiceError: nothing has the name, or nothing was found out for it yet.
    """
    unknown: list[ApiError] = []
    for kind in ("model", "workload"):
        try:
            found = client.recommendations(**{kind: name})
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            unknown.append(error)
            continue
        if found:
            say(_origin(kind, name, found), err=True)
            return found[0]
    if len(unknown) == 2:
        raise ServiceError("; ".join(error.problem.detail for error in unknown))
    raise ServiceError(f"there is no recommendation for {name!r} yet: no job with it has succeeded")


def best_by_fingerprint(client: Client, fingerprint: str) -> RecommendationRead:
    """Raises: ServiceError: there is none."""
    found = client.recommendations(fingerprint=fingerprint)
    if not found:
        raise ServiceError(f"there is no recommendation for fingerprint {fingerprint!r} yet")
    return found[0]


def _origin(kind: str, name: str, found: list[RecommendationRead]) -> str:
    best = found[0]
    told = f"{kind} {name}: {best.evidence.status}, of job {best.job_id}"
    fingerprints = {one.key.fingerprint for one in found}
    if len(fingerprints) > 1:
        told += (
            f"; {len(fingerprints)} different models have answers here, this one is for fingerprint "
            f"{best.key.fingerprint or 'unknown'} (--fingerprint asks for one)"
        )
    return told
