"""The page that asks for configs of a model that was never tuned, and the answer below the form."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from service.api.dependencies import CallerDependency, DatabaseDependency, TurnsDependency
from service.api.pooling import PoolReaderDependency
from service.api.request_body import join_field
from service.api.schemas.untuned import MAX_CONFIGS, UntunedAnswerRead, UntunedQuestion
from service.dashboard.recommendations.asked import PATH
from service.dashboard.recommendations.view import of_formats
from service.dashboard.rendering import page
from service.errors import InvalidInput
from service.evidence.formats.written import Format
from service.transfer.pooled import NUM_NAMED
from service.transfer.situation import FAMILY_MEMBERS
from service.use_cases.untuned.transferring import configs_for

MAX_FIELDS = 8
"""The form has six; a body of many is refused before all of it is parsed. By judgement."""
COUNTS = ("batch_size", "num_steps", "num_trials")
DEFAULTS = {
    "fingerprint": "",
    "batch_size": "128",
    "num_steps": "1000",
    "num_trials": "5",
    "preconditioner": "",
    "proxy_job": "",
}

router = APIRouter(include_in_schema=False)


@router.get(PATH + "/untuned")
async def untuned_form(request: Request, proxy_job: str = "") -> HTMLResponse:
    """The form; `proxy_job` is filled in."""
    return _page(request, {**DEFAULTS, "proxy_job": proxy_job})


@router.post(PATH + "/untuned")
async def untuned_answer(
    request: Request,
    caller: CallerDependency,
    database: DatabaseDependency,
    turns: TurnsDependency,
    pool: PoolReaderDependency,
) -> HTMLResponse:
    """The form with the answer to it; nothing is stored."""
    try:
        fields = parse_qs((await request.body()).decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        fields = {}
    given = {name: fields.get(name, [default])[0] for name, default in DEFAULTS.items()}
    try:
        question = UntunedQuestion.model_validate(_asked(given))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ""
        for part in first["loc"]:
            field = join_field(field, part)
        return _page(request, given, problem=f"{field}: {first['msg']}")
    except ValueError as error:
        return _page(request, given, problem=str(error))

    pooled = await pool.answer(question.wanted)

    def answer() -> UntunedAnswerRead:
        with database.reading() as session:
            found = configs_for(session, question.wanted, pooled, project=caller.sees)
            return UntunedAnswerRead.of(found, question)

    try:
        async with turns.one():
            return _page(request, given, found=await run_in_threadpool(answer))
    except InvalidInput as error:
        return _page(request, given, problem=str(error))


def _asked(given: dict[str, str]) -> dict[str, Any]:
    """The body of a request that asks the same. Raises: ValueError: a field is no JSON, or no number."""
    try:
        fingerprint = json.loads(given["fingerprint"])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"fingerprint: is no JSON, as shampoo-tuner fingerprint prints it ({error})") from error
    counts: dict[str, int] = {}
    for name in COUNTS:
        if not given[name].strip().isdecimal():
            raise ValueError(f"{name}: must be an integer, got {given[name]!r:.40}")
        counts[name] = int(given[name])
    budget = {"num_trials": counts.pop("num_trials")}
    chosen = {name: given[name].strip() or None for name in ("preconditioner", "proxy_job")}
    return {"fingerprint": fingerprint, **counts, "budget": budget, **chosen, "formats": list(Format)}


def _page(
    request: Request, given: dict[str, str], *, problem: str | None = None, found: UntunedAnswerRead | None = None
) -> HTMLResponse:
    copies = (
        []
        if found is None
        else [of_formats(one.formats, prefix=f"config-{number}") for number, one in enumerate(found.items, start=1)]
    )
    limits = {"max_configs": MAX_CONFIGS, "num_named": NUM_NAMED, "members": FAMILY_MEMBERS}
    context = {"given": given, "problem": problem, "found": found, "copies": copies, **limits}
    return page(request, "recommendations/untuned.html", context, status_code=422 if problem else 200)
