// The best value found so far as a figure for Plotly.

import { layoutOf, literal, number, unitOf, valueAxis } from "./axis.js";
import { atEqualTrials } from "./best_data.js";
import { trialLink } from "./links.js";
import { outliersOf } from "./outliers.js";

export function sidesDrawn({ groups, sides }) {
  return groups.filter((group) => sides[group.key]?.line.y.length);
}

/**
 * The figure, and its outliers, or null. `axis`: "trials" or "seconds"; `hidden`: keys of sides that the reader has hidden;
 * `isWhole`: outliers are drawn, too.
 */
export function bestFigure(known, { axis, scale, hidden, isWhole }) {
  const place = axis === "trials" ? "n" : "seconds";
  const shown = sidesDrawn(known).filter((group) => !hidden.has(group.key));
  const sides = shown.map((group) => [group, known.sides[group.key]]);
  const ends = sides.map(([, side]) => (axis === "trials" ? side.count : side.end));
  const end = Math.max(0, ...ends);
  const unit = axis === "trials" ? { size: 1 } : unitOf(end);
  const scaled = (places) => (unit.size === 1 ? places : places.map((each) => each / unit.size));
  const data = [];
  const values = [];
  sides.forEach(([group, side], index) => {
    const label = literal(group.label);
    const best = side.line.y.at(-1);
    values.push(...side.dots.y);
    const common = { type: "scatter", meta: { group: group.key } };
    if (ends[index] < end) {
      // After its last trial a side finds nothing more: a thin line, for comparison.
      data.push({
        ...common,
        mode: "lines",
        x: scaled([ends[index], end]),
        y: [best, best],
        line: { width: 1, color: group.colour, dash: "dot" },
        hoverinfo: "skip",
      });
    }
    data.push(
      {
        ...common,
        mode: "lines",
        x: scaled([...side.line[place], ends[index]]),
        y: [...side.line.y, best],
        line: { shape: "hv", width: 2.5, color: group.colour, dash: group.dash },
        hovertemplate: `${label}<br>best found %{y:.4g}<extra></extra>`,
      },
      {
        ...common,
        mode: "markers",
        x: scaled(side.dots[place]),
        y: side.dots.y,
        customdata: side.dots.number,
        marker: { size: 6, color: group.colour, opacity: 0.55 },
        hovertemplate: `<b>#%{customdata}</b> ${label}<br>%{y:.4g}<extra></extra>`,
      },
    );
  });
  const best = known.direction === "maximize" ? Math.max(...values) : Math.min(...values);
  const outliers = outliersOf(values, best, { direction: known.direction, scale });
  const layout = layoutOf(
    { title: { text: axis === "trials" ? "finished trials of each side" : `${unit.name} since the job started` }, rangemode: "tozero" },
    { title: literal(known.metric), ...valueAxis(values, scale, isWhole ? null : outliers) },
  );
  if (axis === "trials" && end <= 10) layout.xaxis.dtick = 1; // Plotly would set ticks at halves
  const equal = axis === "trials" ? atEqualTrials(known) : null;
  if (equal && equal.count < end) {
    const line = { width: 1, dash: "dash", color: "#8b949e" };
    layout.shapes = [{ type: "line", layer: "below", x0: equal.count, x1: equal.count, yref: "paper", y0: 0, y1: 1, line }];
  }
  return { data, layout, outliers };
}

/** The comparison after equal numbers of trials, in words; empty: there is none. */
export function equalInWords(known) {
  const equal = atEqualTrials(known);
  if (!equal) return "";
  const found = equal.found.map(([group, value]) => `${group.label} ${number(value)}`);
  return `After ${equal.count.toLocaleString("en")} ${equal.count === 1 ? "finished trial" : "finished trials"} each: ${found.join(", ")}.`;
}

export function bestTable(known) {
  const rows = sidesDrawn(known).flatMap((group) => {
    const { line } = known.sides[group.key];
    return line.y.map((y, index) => [group.label, line.n[index], number(line.seconds[index]), number(y), trialLink(line.number[index])]);
  });
  return { head: ["Side", "Finished trials", "Seconds", "Best so far", "Found by trial"], rows, num_texts: 1 };
}
