"""What axe-core finds wrong with a page for people who read it by keyboard or screen reader."""

from __future__ import annotations

import functools
from importlib.resources import files

from playwright.sync_api import Page

_FOUND = """() => axe.run().then(({violations}) => violations.flatMap(({id, impact, help, nodes}) =>
    nodes.map((node) => `${impact} ${id}: ${help}\\n  ${node.html.slice(0, 200)}\\n  ${node.failureSummary}`)))"""


@functools.cache
def _axe() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def assert_accessible(page: Page) -> None:
    """Fails if axe-core, with all its rules, finds anything in the open page, in light or in dark."""
    found = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.evaluate(_axe())
        found += [f"{scheme}: {told}" for told in page.evaluate(_FOUND)]
    page.emulate_media(color_scheme="null")
    assert found == [], "\n".join(found)
