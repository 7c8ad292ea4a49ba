"""Faults of a page for people who use a keyboard or screen reader, found by axe-core, and too low contrast, by the
formula of WCAG 2.2."""

from __future__ import annotations

import functools
from importlib.resources import files

from playwright.sync_api import Page

_FOUND = """([within, options]) =>
  axe.run(within, {resultTypes: ["violations"], ...options}).then(({violations}) => violations.flatMap(
    ({id, impact, help, nodes}) =>
      nodes.map((node) => `${impact} ${id}: ${help}\\n  ${node.html.slice(0, 200)}\\n  ${node.failureSummary}`)))"""
"""The script need not describe every element that is right."""

_OPTIONS = {
    # axe-core leaves it out by default: people who speak to a page say the text of a button.
    "light": {"rules": {"label-content-name-mismatch": {"enabled": True}}},
    "dark": {"runOnly": ["color-contrast", "link-in-text-block"]},
}
"""By colour scheme."""


@functools.cache
def _axe() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def assert_accessible(page: Page, *, within: str = "html") -> None:
    """Fails if axe-core finds anything in the open page: by all of its rules in light mode, by those about colours in
    dark mode.

    Args:
        within: a selector of the part to check.
    """
    page.evaluate(_axe())
    found = []
    for scheme, options in _OPTIONS.items():
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # a literal
        found += [f"{scheme}: {told}" for told in page.evaluate(_FOUND, [within, options])]
    page.emulate_media(color_scheme="null")
    assert found == [], "\n".join(found)


LOW_CONTRAST = """() => {
  for (const change of document.getAnimations()) if (change instanceof CSSTransition) change.finish();
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const over = ([r, g, b, a = 1], below) => [r, g, b].map((c, i) => a * c + (1 - a) * below[i]);
  const ground = (element) => {
    if (!element) return [255, 255, 255];
    const colour = parse(getComputedStyle(element).backgroundColor);
    return (colour[3] ?? 1) === 1 && colour.length ? colour.slice(0, 3) : over(colour, ground(element.parentElement));
  };
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.nodeValue.trim();
    if (!text || element.closest("svg, script, style, .hidden, .skip") || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const behind = ground(element);
    const [light, dark] = [luminance(over(parse(style.color), behind)), luminance(behind)].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) found.push(`${text.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return found;
}"""
