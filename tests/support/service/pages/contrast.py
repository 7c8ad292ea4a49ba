"""Finds text of too low a contrast in a page, by the formula of WCAG 2.2 (relative luminance, ratio of 4.5 or 3)."""

LOW_CONTRAST = """() => {
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
