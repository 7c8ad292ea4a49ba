// Learning curves as a figure for Plotly. All curves of a group are one line with gaps: a line for each of a hundred
// trials would take Plotly twenty times as long.

import { layoutOf, literal, number, valueAxis } from "./axis.js";
import { trialLink } from "./links.js";
import { outliersOf } from "./outliers.js";

const TITLES = {
  step: "step",
  examples: "examples",
  epoch: "epoch",
  seconds: "training seconds",
  device_seconds: "device-seconds",
};
const MAX_PARAMETERS = 8;

function told(curve, over) {
  const reason = curve.reason ? ` (${curve.reason})` : "";
  const of = curve.confirms === null ? "" : ` of #${curve.confirms}`;
  const lines = [`<b>#${curve.number}</b> ${literal(curve.title)}${of}, ${literal(curve.state + reason)}`];
  for (const [name, value] of curve.parameters.slice(0, MAX_PARAMETERS)) lines.push(`${literal(name)} = ${literal(value)}`);
  return [...lines, `${over} `].join("<br>");
}

/** x and y of some curves one after the other, with gaps; `customdata`: the trial, `text`: its description. */
function joined(curves, over) {
  const line = { x: [], y: [], customdata: [], text: [] };
  for (const curve of curves) {
    const text = told(curve, over);
    for (let index = 0; index < curve.y.length; index++) {
      line.x.push(curve.x[index]);
      line.y.push(curve.y[index]);
      line.customdata.push(curve.number);
      line.text.push(text);
    }
    line.x.push(null);
    line.y.push(null);
    line.customdata.push(null);
    line.text.push(null);
  }
  return line;
}

function lastFinite(curve) {
  for (let index = curve.y.length - 1; index >= 0; index--) if (curve.y[index] !== null) return index;
  return -1;
}

const HOVER = "%{text}%{x}: %{y:.4g}<extra></extra>";
const DIVERGED = "; then it diverged";

/** The texts for the points of joined curves; the last finite point of each also gets `more`, because Plotly takes the
 * line's point if the pointer is on the cross at its end. */
function templatesTo({ y, customdata }, more) {
  const last = new Map(customdata.map((number, index) => [number, index]).filter(([, index]) => y[index] !== null));
  return customdata.map((number, index) => (last.get(number) === index ? HOVER.replace("<extra>", `${more}<extra>`) : HOVER));
}

/** The last finite points of some curves. */
function ends(curves, over, more) {
  const found = { x: [], y: [], customdata: [], text: [] };
  for (const curve of curves) {
    const index = lastFinite(curve);
    if (index < 0) continue;
    found.x.push(curve.x[index]);
    found.y.push(curve.y[index]);
    found.customdata.push(curve.number);
    found.text.push(told(curve, over));
  }
  return { ...found, hovertemplate: `%{text}%{x}: %{y:.4g}${more}<extra></extra>` };
}

/** The groups of curves, in the order of the legend. */
export function groupsDrawn({ groups, curves }) {
  const keys = new Set([...curves.values()].map((curve) => curve.group.key));
  return [...groups.values()].filter((group) => keys.has(group.key));
}

/**
 * The figure for the data of `points.js`, and its outliers, or null. `scale`: "log", "linear" or null; `hidden`: keys of
 * groups that the reader has hidden; `isWhole`: outliers are drawn, too; `picked`: the trial that stands out, or null.
 */
export function curvesFigure(known, { scale, hidden, isWhole, picked }) {
  const over = TITLES[known.over];
  const left = [...known.curves.values()].filter((curve) => !hidden.has(curve.group.key));
  const shown = left.some((curve) => lastFinite(curve) >= 0) ? left : []; // without a point Plotly makes up its axes
  const data = [];
  const isFaded = picked !== null && shown.some((curve) => curve.number === picked);
  for (const group of groupsDrawn(known)) {
    const own = shown.filter((curve) => curve.group === group);
    if (!own.length) continue;
    const opacity = isFaded ? 0.18 : 1;
    const line = joined(own, over);
    data.push({
      ...line,
      type: "scatter",
      mode: "lines",
      meta: { group: group.key },
      line: { width: 1.5, color: group.colour, dash: group.dash },
      opacity,
      hovertemplate: group.key === "diverged" ? templatesTo(line, DIVERGED) : HOVER,
    });
    const single = own.filter((curve) => curve.y.filter((value) => value !== null).length === 1);
    const marker = { size: 6, color: group.colour };
    if (single.length) {
      data.push({ ...ends(single, over, ""), type: "scatter", mode: "markers", meta: { group: group.key }, marker, opacity });
    }
    if (group.key === "diverged") {
      const cross = { symbol: "x", size: 9, color: group.colour };
      const crossed = ends(own, over, DIVERGED);
      data.push({ ...crossed, type: "scatter", mode: "markers", meta: { group: "diverged" }, marker: cross, opacity });
    }
  }
  if (isFaded) {
    const [curve] = shown.filter((each) => each.number === picked);
    data.push({
      ...joined([curve], over),
      type: "scatter",
      mode: "lines+markers",
      meta: { group: curve.group.key, number: picked },
      line: { width: 3.5, color: curve.group.colour, dash: curve.group.dash },
      marker: { size: 5, color: curve.group.colour },
      hovertemplate: "%{text}%{x}: %{y:.4g}<extra></extra>",
    });
  }
  const outliers = outliersAmong(shown, known.direction, scale);
  const values = shown.flatMap((curve) => curve.y);
  const layout = layoutOf(
    { title: { text: over }, rangemode: "tozero" },
    { title: literal(known.metric), ...valueAxis(values, scale, isWhole ? null : outliers) },
  );
  layout.shapes = known.rungs.map((step) => ({
    type: "line",
    layer: "below",
    x0: step,
    x1: step,
    yref: "paper",
    y0: 0,
    y1: 1,
    line: { width: 1, dash: "dot", color: "#8b949e" },
  }));
  return { data, layout, outliers };
}

function outliersAmong(curves, direction, scale) {
  const finite = curves.map((curve) => curve.y.filter((value) => value !== null)).filter((y) => y.length);
  const [best, worst] = direction === "maximize" ? [Math.max, Math.min] : [Math.min, Math.max];
  return outliersOf(finite.map((y) => worst(...y)), best(...finite.map((y) => best(...y))), { direction, scale });
}

/** The curves as rows of a table, and its head. */
export function curvesTable(known) {
  const extremes = (y) => y.filter((value) => value !== null);
  const rows = [...known.curves.values()].map((curve) => {
    const values = extremes(curve.y);
    const last = lastFinite(curve);
    return [
      trialLink(curve.number),
      curve.group.label,
      curve.reason ? `${curve.state} (${curve.reason.replaceAll("_", " ")})` : curve.state,
      values.length,
      number(curve.x.at(-1)),
      number(values[0]),
      number(values.length ? Math.min(...values) : null),
      number(values.length ? Math.max(...values) : null),
      number(last < 0 ? null : curve.y[last]),
    ];
  });
  const head = ["Trial", "Drawn as", "State", "Points", `Last ${TITLES[known.over]}`, "First", "Lowest", "Highest", "Last"];
  return { head, rows, num_texts: 3 };
}

export { TITLES };
