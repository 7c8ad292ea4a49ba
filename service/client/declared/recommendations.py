"""The requests about recommendations, each declared once for both clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from service.api.schemas.recommendations import RecommendationList, RecommendationRead
from service.api.schemas.untuned import UntunedAnswerRead
from service.client.calls import Call, reading
from service.evidence.formats.written import Written
from trainers.identity.values import Fingerprint


def recommendations(workload: str | None = None, **asked: str | int) -> Call[list[RecommendationRead]]:
    """The recommendations that hold for all that is asked, the best first.

    Args:
        workload: its name; None: any.
        asked: further parameters of `GET /v1/recommendations`: `model`, `fingerprint`, `batch_size`, ...

    Raises:
        ApiError: 404: there is no such model, workload or fingerprint; the problem names those there are.
    """
    params = asked if workload is None else {"workload": workload, **asked}
    return Call(
        lambda content: RecommendationList.model_validate_json(content).items,
        "GET",
        "/v1/recommendations",
        params=params,
    )


def recommend(
    fingerprint: Fingerprint | Mapping[str, Any],
    *,
    batch_size: int,
    num_steps: int,
    num_trials: int = 5,
    preconditioner: str | None = None,
    proxy_job: str | None = None,
    formats: Sequence[str] = (),
) -> Call[UntunedAnswerRead]:
    """Configs to try first on a model that was never tuned, the best guess first.

    Args:
        fingerprint: the model's fingerprint, as `shampoo-tuner fingerprint` prints it.
        batch_size: examples in a step, of all ranks.
        num_steps: steps of the whole training.
        num_trials: configs that are wanted.
        preconditioner: the member of Shampoo's family that they should be of; None: any.
        proxy_job: the job that tuned a smaller or shorter version of the model, whose answer alone is moved.
        formats: formats of `service.evidence.formats.written.Format` in which each config is written, beside Python.

    Raises:
        ApiError: 422: the problem names the fields.
    """
    model = fingerprint.to_json() if isinstance(fingerprint, Fingerprint) else dict(fingerprint)
    budget = {"num_trials": num_trials}
    body: dict[str, Any] = {"fingerprint": model, "batch_size": batch_size, "num_steps": num_steps, "budget": budget}
    if formats:
        body["formats"] = list(formats)
    if preconditioner is not None:
        body["preconditioner"] = preconditioner
    if proxy_job is not None:
        body["proxy_job"] = proxy_job
    return Call(reading(UntunedAnswerRead), "POST", "/v1/recommendations", body=body, repeatable=True)


def recommendation(job_id: str) -> Call[RecommendationRead]:
    """Raises: ApiError (404: there is none yet)."""
    return Call(reading(RecommendationRead), "GET", f"/v1/jobs/{quote(job_id, safe='')}/recommendation")


def one_recommendation(recommendation_id: str) -> Call[RecommendationRead]:
    """A recommendation by its own id. Raises: ApiError (404: there is none)."""
    return Call(reading(RecommendationRead), "GET", f"/v1/recommendations/{quote(recommendation_id, safe='')}")


def written_recommendation(recommendation_id: str, form: str) -> Call[Written]:
    """A recommended config in another format, with what of it cannot be said there.

    Args:
        recommendation_id: its own id.
        form: one of `service.evidence.formats.written.Format`.

    Raises:
        ApiError: 404: there is no such recommendation; 422: no such format.
    """
    address = f"/v1/recommendations/{quote(recommendation_id, safe='')}/formats/{quote(form, safe='')}"
    return Call(reading(Written), "GET", address)
