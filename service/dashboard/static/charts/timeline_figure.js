// The timeline of trials, and the tree of forks, as figures for Plotly.
//
// All bars of a colour are one path. For the pointer there are invisible points along the bars.

import { layoutOf, literal, number, unitOf } from "./axis.js";
import { trialLink } from "./links.js";

/** The endings of stretches of training, in the order of the legend. */
const ENDINGS = [
  ["completed", "#3a9a56"],
  ["running", "#3b82d6"],
  ["paused", "#c9a227"],
  ["stopped early", "#8b949e"],
  ["diverged", "#dc4a41"],
  ["failed", "#b8578f"],
  ["cancelled", "#6b5b95"],
].map(([key, colour]) => ({ key, label: key, colour, dash: "solid" }));

// The gap between two trials in a lane: a share of the whole width, and at most a third of the first trial.
const GAP = 0.0015;

export function endingsDrawn(endings) {
  return ENDINGS.filter(({ key }) => endings.includes(key));
}

/** The stretches of a page after another answer: those before `first` stay. */
export function mergedTimeline(known, answer) {
  const stretches = {};
  for (const [name, column] of Object.entries(answer.stretches)) {
    const words = { ending: answer.endings, place: answer.places }[name];
    const told = words ? column.map((index) => words[index] ?? null) : column;
    stretches[name] = [...(known?.stretches[name].slice(0, answer.first) ?? []), ...told];
  }
  return { ...answer, stretches };
}

/** The first stretch that was still running. */
export function firstOpen({ stretches }) {
  const first = stretches.ending.indexOf("running");
  return first < 0 ? stretches.ending.length : first;
}

// The distance of a bar's points for the pointer, as a share of the whole width.
const VERTICES = 150;
const HALF_HEIGHT = 0.38;

const short = (value) => Number(value.toPrecision(7));

/**
 * {data, bars} of bars {key, trial, lane, span, text}, by ending, for `bars.js`; the bar of `picked` stands out.
 * `hidden`: endings that the reader has hidden.
 */
function drawnBars(bars, { hidden, picked }) {
  const shown = bars.filter(({ key }) => !hidden.has(key));
  // From zero on, like the axis; a trial that began by another clock may be before it.
  const begin = shown.reduce((least, { span }) => Math.min(least, span[0]), 0);
  const end = shown.reduce((most, { span }) => Math.max(most, span[1]), 0);
  const isPicked = shown.some(({ trial }) => trial === picked);
  const data = [];
  const drawn = [];
  const path = (some) =>
    some
      .map(({ span: [from, to], lane }) => {
        const [left, right, top, bottom] = [from, to, lane - HALF_HEIGHT, lane + HALF_HEIGHT].map(short);
        return `M${left},${top}H${right}V${bottom}H${left}Z`;
      })
      .join("");
  for (const { key, colour } of ENDINGS) {
    const own = shown.filter((bar) => bar.key === key);
    if (!own.length) continue;
    const found = { x: [], y: [], customdata: [], text: [] };
    for (const { span: [from, to], lane, trial, text } of own) {
      const parts = Math.max(2, Math.ceil((VERTICES * (to - from)) / (end - begin || 1)));
      for (let part = 0; part <= parts; part++) {
        found.x.push(from + ((to - from) * part) / parts);
        found.y.push(lane);
        found.customdata.push(trial);
        found.text.push(text);
      }
    }
    const hoverlabel = { bordercolor: colour };
    const hovertemplate = "%{text}<extra></extra>";
    data.push({ ...found, type: "scatter", mode: "none", meta: { group: key }, hoverlabel, hovertemplate });
    drawn.push({ path: path(own), colour, opacity: isPicked ? 0.3 : 1 });
  }
  if (isPicked) drawn.push({ path: path(shown.filter(({ trial }) => trial === picked)), colour: "#3b82d6", opacity: 1 });
  return { data, bars: drawn };
}

function told({ number: trials, turn, ending, from, to, place }, index) {
  const again = turn[index] > 1 ? `, stretch ${turn[index]}` : "";
  const where = place[index] === null ? "" : `<br>${literal(place[index])}`;
  return `<b>#${trials[index]}</b>${again}<br>${literal(ending[index])} after ${number(to[index] - from[index])} s${where}`;
}

export function timelineFigure({ stretches, num_lanes }, choices) {
  const end = stretches.to.reduce((most, each) => Math.max(most, each), 0);
  const unit = unitOf(end);
  const stretchBars = stretches.number.map((trial, index) => {
    const [begin, last] = [stretches.from[index], stretches.to[index]];
    const span = [begin, last - Math.min(GAP * end, (last - begin) / 3)].map((each) => each / unit.size);
    return { key: stretches.ending[index], trial, lane: stretches.lane[index] + 1, span, text: told(stretches, index) };
  });
  const { data, bars } = drawnBars(stretchBars, choices);
  const layout = layoutOf({ title: { text: `${unit.name} since the job started` }, rangemode: "tozero" }, { title: "lane" });
  const step = Math.max(1, Math.ceil(num_lanes / 12));
  Object.assign(layout.yaxis, { range: [num_lanes + 0.5, 0.5], tick0: 1, dtick: step, type: "linear", showgrid: false });
  return { data, layout, bars };
}

export function timelineTable({ stretches }) {
  const rows = stretches.number.map((trial, index) => [
    trialLink(trial),
    stretches.ending[index],
    stretches.place[index] ?? "–",
    stretches.lane[index] + 1,
    number(stretches.from[index]),
    number(stretches.to[index] - stretches.from[index]),
  ]);
  return { head: ["Trial", "Then", "Where", "Lane", "Began after, s", "Trained, s"], rows, num_texts: 3 };
}

export function forksFigure({ forks, metric }, choices) {
  const branches = { x: [], y: [] };
  const forkBars = forks.number.map((trial, row) => {
    const [first, last] = [forks.first[row], forks.last[row]];
    const parent = forks.parent[row];
    const of = parent === null ? "" : `, fork of #${forks.number[parent]} at step ${first}`;
    const text = `<b>#${trial}</b>${of}<br>${literal(forks.ending[row])}, ${literal(metric)} ${number(forks.value[row])}`;
    if (parent !== null && !choices.hidden.has(forks.ending[row])) {
      branches.x.push(first, first, null);
      branches.y.push(parent, row, null);
    }
    return { key: forks.ending[row], trial, lane: row, span: [first, last], text };
  });
  const { data, bars } = drawnBars(forkBars, choices);
  const line = { width: 1.5, color: "#8b949e", dash: "dot" };
  if (branches.x.length) data.push({ ...branches, type: "scatter", mode: "lines", meta: {}, line, hoverinfo: "skip" });
  const layout = layoutOf({ title: { text: "step" }, rangemode: "tozero" }, { title: "trial" });
  const stride = Math.max(1, Math.ceil(forks.number.length / 24));
  const rows = forks.number.map((_, row) => row).filter((row) => row % stride === 0);
  Object.assign(layout.yaxis, {
    range: [forks.number.length - 0.5, -0.5],
    tickmode: "array",
    tickvals: rows,
    ticktext: rows.map((row) => `#${forks.number[row]}`),
    type: "linear",
    showgrid: false,
  });
  return { data, layout, bars };
}

export function forksTable({ forks, metric }) {
  const rows = forks.number.map((trial, row) => {
    const parent = forks.parent[row];
    const from = parent === null ? ["–", "–"] : [`#${forks.number[parent]}`, forks.first[row]];
    return [trialLink(trial), forks.ending[row], ...from, forks.last[row], number(forks.value[row])];
  });
  return { head: ["Trial", "Then", "Fork of", "At step", "Last step", metric], rows, num_texts: 3 };
}
