"""Faults that axe-core finds in a page for people who read it by keyboard or screen reader."""

from __future__ import annotations

import functools
from importlib.resources import files

from playwright.sync_api import Page

_FOUND = """([within, options]) =>
  axe.run(within, {resultTypes: ["violations"], ...options}).then(({violations}) => violations.flatMap(
    ({id, impact, help, nodes}) =>
      nodes.map((node) => `${impact} ${id}: ${help}\\n  ${node.html.slice(0, 200)}\\n  ${node.failureSummary}`)))"""
"""Of what is right, it need not describe every element."""

_OPTIONS = {
    # axe-core leaves it out unless asked: who speaks to a page says what is written on a button.
    "light": {"rules": {"label-content-name-mismatch": {"enabled": True}}},
    "dark": {"runOnly": ["color-contrast", "link-in-text-block"]},
}
"""By colour scheme."""


@functools.cache
def _axe() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def assert_accessible(page: Page, *, within: str = "html") -> None:
    """Fails if axe-core finds anything in the open page, by its rules in light, by those of colours in dark.

    Args:
        within: a selector of what is looked at.
    """
    page.evaluate(_axe())
    found = []
    for scheme, options in _OPTIONS.items():
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # a literal
        found += [f"{scheme}: {told}" for told in page.evaluate(_FOUND, [within, options])]
    page.emulate_media(color_scheme="null")
    assert found == [], "\n".join(found)
