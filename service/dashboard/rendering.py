"""Turns a page's content into an answer: templates and their filters, the site's pages, headers. Never the content."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from markupsafe import Markup, escape
from starlette.templating import Jinja2Templates

from service.api.conditional import is_known
from service.clock import utc_text
from service.dashboard import times
from service.dashboard.assets import PLOTLY_FILE, PLOTLY_PATH
from service.dashboard.cells import asked, parameter, parameter_cells
from service.evidence.in_words.luck import less_probable_words
from service.evidence.in_words.wording import (
    chance,
    cost_words,
    counted,
    device_hours,
    device_time,
    duration,
    number,
    optimizer_title,
    signed_share,
    spread,
    time_left,
    times_words,
)
from service.evidence.in_words.words import alternative_words, branches_words

SITE = (
    ("/", "Jobs"),
    ("/recommendations", "Recommendations"),
    ("/cluster", "Cluster"),
    ("/settings", "Settings"),
    ("/docs", "API"),
)
"""Address and name of what the head of each page leads to."""

# Plotly writes style elements, hence 'unsafe-inline' for styles; scripts come from files only.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
)
_TURNING = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
"""Classes of characters that turn the direction of what follows, and of those that end it."""
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
}


def page(request: Request, template: str, context: Mapping[str, Any], *, status_code: int = 200) -> HTMLResponse:
    """A page, or a part of one, from a template of `templates/`."""
    return _templates.TemplateResponse(request, template, dict(context), status_code=status_code, headers=HEADERS)


def live_parts(request: Request, template: str, context: Mapping[str, Any], known: str | None) -> Response:
    """The parts of a page that change while it is open, as a template gives them, or 304 if the browser has just that.

    Args:
        known: what `If-None-Match` says.
    """
    rendered = page(request, template, context)
    tag = f'"{hashlib.sha256(rendered.body).hexdigest()[:20]}"'
    headers = {**HEADERS, "ETag": tag, "Cache-Control": "private, no-cache"}
    if is_known(tag, known):
        return Response(status_code=304, headers=headers)
    rendered.headers.update(headers)
    return rendered


def breakable(name: str) -> Markup:
    """The name of a setting, that a narrow column may break behind its dots and underscores alone."""
    return escape(name).replace(".", Markup(".<wbr>")).replace("_", Markup("_<wbr>"))


def undirected(name: str) -> str:
    """The name without characters that turn the direction of writing, for a page's title: there, no element keeps what
    follows from being turned."""
    return "".join(letter for letter in name if unicodedata.bidirectional(letter) not in _TURNING)


def prose(text: str) -> Markup:
    """The text with `code` for what stands between backticks, all else inert."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one is not closed
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if index % 2 else part for index, part in enumerate(parts)
    )


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=number,
        spread=spread,
        parameter=parameter,
        parameter_cells=parameter_cells,
        asked=asked,
        counted=counted,
        duration=duration,
        device_time=device_time,
        time_left=time_left,
        alternative_words=alternative_words,
        branches_words=branches_words,
        less_probable_words=less_probable_words,
        chance=chance,
        signed_share=signed_share,
        optimizer_title=optimizer_title,
        prose=prose,
        breakable=breakable,
        undirected=undirected,
        times_words=times_words,
        ago=times.ago,
        iso=times.iso,
        absolute=utc_text,
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
    environment.globals.update(device_hours=device_hours, cost_words=cost_words, site=SITE)
    environment.globals["plotly_url"] = f"{PLOTLY_PATH}/{PLOTLY_FILE}"
    return environment


_templates = Jinja2Templates(env=_environment())
