"""The recommendation that `recommend` prints: by name, tried as a model's and then as a workload's, by fingerprint, or
for a model that was never tuned."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic_core import from_json

from service.cli.asking import say
from service.client import ApiError, Client
from service.errors import ServiceError
from service.evidence.in_words.wording import times_words

if TYPE_CHECKING:
    from service.api.schemas.recommendations import RecommendationRead
    from service.api.schemas.untuned import UntunedAnswerRead


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
            if error.status != HTTPStatus.NOT_FOUND:
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


def asked_of_file(
    client: Client,
    path: Path,
    *,
    batch_size: int,
    num_steps: int,
    num_trials: int,
    preconditioner: str | None,
    proxy_job: str | None,
    formats: Sequence[str],
) -> UntunedAnswerRead:
    """The configs to try first on a model that was never tuned.

    Args:
        path: of the file with its fingerprint.
        preconditioner: the member of Shampoo's family that they should be of; None: any.
        proxy_job: the job that tuned a smaller or shorter version of it, whose answer alone is moved.
        formats: those in which each is written, beside Python.

    Raises:
        ServiceError: the file holds none, or the service refused it.
    """
    try:
        fingerprint = from_json(path.read_bytes(), allow_inf_nan=False)
    except (ValueError, OSError) as error:
        raise ServiceError(f"{path} holds no JSON, as `shampoo-tuner fingerprint` prints it: {error}") from error
    if not isinstance(fingerprint, dict):
        raise ServiceError(f"{path} holds no fingerprint, as `shampoo-tuner fingerprint` prints it")
    return client.recommend(
        fingerprint,
        batch_size=batch_size,
        num_steps=num_steps,
        num_trials=num_trials,
        preconditioner=preconditioner,
        proxy_job=proxy_job,
        formats=formats,
    )


def say_list(found: UntunedAnswerRead) -> None:
    """Prints on standard error what an answer rests on, and its configs in a line each."""
    say(found.says, err=True)
    for place, one in enumerate(found.items, start=1):
        if one.lr_factor != 1:
            told = f"the first one with {times_words(one.lr_factor)} its learning rate"
        else:
            job = f", {one.origin.job_id}" if one.origin.job_id else ""
            far = "as published" if one.distance is None else f"{one.distance.total:.1f} octaves away"
            told = f"{one.config.get('preconditioner', one.optimizer)} of {one.origin.name}{job}, {far}"
        say(f"{place}. lr {one.config['lr']:g}, {told}", err=True)


def _origin(kind: str, name: str, found: list[RecommendationRead]) -> str:
    from service.evidence.in_words.standing import standing_of

    best = found[0]
    told = f"{kind} {name}: {standing_of(best.evidence).short}, of job {best.job_id}"
    fingerprints = {one.key.fingerprint for one in found}
    if len(fingerprints) > 1:
        told += (
            f"; {len(fingerprints)} different models have answers here, this one is for fingerprint "
            f"{best.key.fingerprint or 'unknown'} (--fingerprint asks for one)"
        )
    return told
