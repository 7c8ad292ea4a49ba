// What ran when, and the tree of forks, as figures for Plotly.

import { layoutOf, literal, number, unitOf } from "./axis.js";

/** What stretches of training led to, in the order of the legend. */
export const ENDINGS = [
  ["completed", "#3a9a56"],
  ["running", "#3b82d6"],
  ["paused", "#c9a227"],
  ["stopped early", "#8b949e"],
  ["diverged", "#dc4a41"],
  ["failed", "#b8578f"],
  ["cancelled", "#6b5b95"],
].map(([key, colour]) => ({ key, label: key, colour, dash: "solid" }));

const GAP = 0.0015;
/** Between two trials in a lane: of the whole width, and at most a third of the first one. */

export function endingsDrawn(endings) {
  return ENDINGS.filter(({ key }) => endings.includes(key));
}

/** The stretches that a page has after another answer: those before `first` stay. */
export function mergedTimeline(known, answer) {
  const stretches = {};
  for (const [name, column] of Object.entries(answer.stretches)) {
    stretches[name] = [...(known?.stretches[name].slice(0, answer.first) ?? []), ...column];
  }
  return { ...answer, stretches };
}

/** The first stretch that still ran. */
export function firstOpen({ stretches }) {
  const first = stretches.ending.indexOf("running");
  return first < 0 ? stretches.ending.length : first;
}

function bar(found, [begin, end], lane, trial, text) {
  found.x.push(begin, (begin + end) / 2, end, null);
  found.y.push(lane, lane, lane, null);
  found.customdata.push(trial, trial, trial, null);
  found.text.push(text, text, text, null);
}

const empty = () => ({ x: [], y: [], customdata: [], text: [] });

function told({ number: trials, turn, ending, from, to }, index) {
  const again = turn[index] > 1 ? `, stretch ${turn[index]}` : "";
  return `<b>#${trials[index]}</b>${again}<br>${literal(ending[index])} after ${number(to[index] - from[index])} s`;
}

export function timelineFigure({ stretches, num_lanes }, { hidden, picked, height }) {
  const end = stretches.to.reduce((most, each) => Math.max(most, each), 0);
  const unit = unitOf(end);
  const width = Math.max(1, Math.min(22, (0.75 * (height - 60)) / Math.max(1, num_lanes)));
  const lines = new Map(ENDINGS.map(({ key }) => [key, empty()]));
  const marked = empty();
  stretches.number.forEach((trial, index) => {
    const ending = stretches.ending[index];
    if (hidden.has(ending)) return;
    const [begin, last] = [stretches.from[index], stretches.to[index]];
    const span = [begin, last - Math.min(GAP * end, (last - begin) / 3)].map((each) => each / unit.size);
    bar(lines.get(ending), span, stretches.lane[index] + 1, trial, told(stretches, index));
    if (trial === picked) bar(marked, span, stretches.lane[index] + 1, trial, told(stretches, index));
  });
  const isMarked = marked.x.length > 0;
  const trace = (line, colour, opacity, meta) => ({
    ...line,
    type: "scatter",
    mode: "lines",
    meta,
    line: { width, color: colour },
    opacity,
    hovertemplate: "%{text}<extra></extra>",
  });
  const data = ENDINGS.filter(({ key }) => lines.get(key).x.length).map(({ key, colour }) =>
    trace(lines.get(key), colour, isMarked ? 0.3 : 1, { group: key }),
  );
  if (isMarked) data.push(trace(marked, "#3b82d6", 1, { number: picked }));
  const layout = layoutOf({ title: { text: `${unit.name} since the job started` }, rangemode: "tozero" }, { title: "lane" });
  const step = Math.max(1, Math.ceil(num_lanes / 12));
  Object.assign(layout.yaxis, { range: [num_lanes + 0.5, 0.5], tick0: 1, dtick: step, type: "linear", showgrid: false });
  return { data, layout };
}

export function timelineTable({ stretches }) {
  const rows = stretches.number.map((trial, index) => [
    trial,
    stretches.lane[index] + 1,
    number(stretches.from[index]),
    number(stretches.to[index] - stretches.from[index]),
    stretches.ending[index],
  ]);
  return { head: ["Trial", "Lane", "Began after, s", "Trained, s", "Then"], rows };
}

export function forksFigure({ forks, metric }, { hidden, picked }) {
  const lines = new Map(ENDINGS.map(({ key }) => [key, empty()]));
  const branches = empty();
  forks.number.forEach((trial, row) => {
    const ending = forks.ending[row];
    if (hidden.has(ending)) return;
    const [first, last] = [forks.first[row], forks.last[row]];
    const parent = forks.parent[row];
    const of = parent === null ? "" : `, fork of #${forks.number[parent]} at step ${first}`;
    const text = `<b>#${trial}</b>${of}<br>${literal(ending)}, ${literal(metric)} ${number(forks.value[row])}`;
    bar(lines.get(ending), [first, last], row, trial, text);
    if (parent === null) return;
    branches.x.push(first, first, null);
    branches.y.push(parent, row, null);
  });
  const data = ENDINGS.filter(({ key }) => lines.get(key).x.length).map(({ key, colour }) => ({
    ...lines.get(key),
    type: "scatter",
    mode: "lines",
    meta: { group: key },
    line: { width: 6, color: colour },
    hovertemplate: "%{text}<extra></extra>",
  }));
  const place = forks.number.indexOf(picked);
  if (place >= 0) {
    const [x, y] = [[forks.first[place], forks.last[place]], [place, place]];
    data.push({ x, y, type: "scatter", mode: "lines", meta: { number: picked }, line: { width: 12, color: "#3b82d6" }, hoverinfo: "skip" });
  }
  data.unshift({
    x: branches.x,
    y: branches.y,
    type: "scatter",
    mode: "lines",
    meta: { group: "branches" },
    line: { width: 1, color: "#8b949e", dash: "dot" },
    hoverinfo: "skip",
  });
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
  return { data, layout };
}

export function forksTable({ forks, metric }) {
  const rows = forks.number.map((trial, row) => {
    const parent = forks.parent[row];
    const from = parent === null ? ["–", "–"] : [`#${forks.number[parent]}`, forks.first[row]];
    return [trial, ...from, forks.last[row], number(forks.value[row]), forks.ending[row]];
  });
  return { head: ["Trial", "Fork of", "At step", "Last step", metric, "Then"], rows };
}
