// Draws the service's figures with Plotly in the page's colours, and highlights one trial in them.

import { feed } from "./feed.js";
import { inTurn, plotly } from "./plotly.js";
import { tabulate } from "./tables.js";

export const CONFIG = { displaylogo: false, responsive: true, displayModeBar: false };
export const dark = matchMedia("(prefers-color-scheme: dark)");
const PAPER_WIDTH = 640; // fits on an upright sheet of A4 or Letter
const TITLE_LETTERS = 32; // of a line: the height of the lowest chart
const TITLE_LINES = 3;

/**
 * The title of a vertical axis in lines, broken after the characters between words: a long name on one line would be
 * longer than the chart. An escape of `literal` for one letter is not broken.
 */
function inLines(title) {
  const letters = (text) => text.match(/&#?\w+;|./gu) ?? [];
  if (letters(title).length <= TITLE_LETTERS) return title;
  const lines = [[]];
  for (const word of title.match(/[^\s_./-]*[\s_./-]*/gu)) {
    if (lines.at(-1).length && lines.at(-1).length + letters(word).length > TITLE_LETTERS) lines.push([]);
    lines.at(-1).push(...letters(word));
  }
  const shown = lines.slice(0, TITLE_LINES).map((line, index) => {
    const isCut = line.length > TITLE_LETTERS || (index === TITLE_LINES - 1 && lines.length > TITLE_LINES);
    return isCut ? `${line.slice(0, TITLE_LETTERS - 1).join("")}…` : line.join("");
  });
  return shown.join("<br>");
}

/** The figure's layout in the page's colours; as long as `id` is the same, updates keep the zoom. */
export function themed(figure, id) {
  const style = getComputedStyle(document.documentElement);
  const { xaxis, yaxis } = figure.layout;
  const colour = (name) => style.getPropertyValue(name).trim();
  const axis = (given) => ({
    ...given,
    title: { ...given.title, font: { size: 12 } },
    tickfont: { size: 11 },
    gridcolor: colour("--grid"),
    linecolor: colour("--border"),
  });
  return {
    ...figure.layout,
    uirevision: id, // keeps zoom and hidden traces over updates
    autosize: true,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("--muted") },
    hoverlabel: { bgcolor: colour("--surface"), bordercolor: colour("--border"), font: { color: colour("--text") }, align: "left" },
    xaxis: axis(xaxis),
    yaxis: axis({ ...yaxis, title: { ...yaxis.title, text: inLines(yaxis.title.text) } }),
  };
}

/** Fades every trial's curve but the picked one; the legend, made of empty traces, keeps its colours. */
function highlighted(figure, picked) {
  const isPicked = (trace) => trace.meta?.number === picked;
  if (picked === null || !figure.data.some(isPicked)) return figure.data;
  const legend = figure.data.filter((trace) => trace.showlegend).map((trace) => ({ ...trace, x: [null], y: [null] }));
  const curves = figure.data.map((trace) => ({ ...trace, showlegend: false }));
  const faded = curves.filter((trace) => !isPicked(trace)).map((trace) => ({ ...trace, opacity: 0.18 }));
  const front = curves
    .filter(isPicked)
    .map((trace) => ({ ...trace, opacity: 1, line: trace.line && { ...trace.line, width: 3.5 } }));
  // The last one drawn is on top.
  return [...legend, ...faded, ...front];
}

/** The points of a figure as a table, without points that only mark others. */
function tableOf({ data, layout }) {
  const traces = data.filter((trace) => trace.hoverinfo !== "skip");
  const isOfTrials = traces.some((trace) => trace.customdata);
  const number = (value) => String(Number(value.toPrecision(5)));
  const rows = traces.flatMap(({ name, x, y, customdata }) =>
    x.map((_, index) => [name, ...(isOfTrials ? [`#${customdata[index]}`] : []), number(x[index]), number(y[index])]),
  );
  return { columns: ["Drawn as", ...(isOfTrials ? ["Trial"] : []), layout.xaxis.title.text, layout.yaxis.title.text], rows };
}

/** A chart in the element `id`, with its points in the table `<id>-table` where the page has one, fed from `url()`; `onPick(number)` gets the trial whose curve was clicked. */
export function chart(id, url, onPick) {
  const element = document.getElementById(id);
  const table = document.getElementById(`${id}-table`);
  const service = feed(url, (known, answer) => answer);
  let picked = null;
  let bound = false;

  /** Thousands of rows are only made if the reader opens the table. */
  function fillTable() {
    if (table?.closest("details").open && service.known()) tabulate(table, tableOf(service.known()));
  }
  table?.closest("details").addEventListener("toggle", fillTable);

  async function draw() {
    const figure = service.known();
    if (!figure) return;
    element.classList.toggle("nothing", figure.data.length === 0);
    if (table) table.closest("details").hidden = figure.data.length === 0;
    fillTable();
    const Plotly = await plotly();
    await inTurn(() => Plotly.react(element, highlighted(figure, picked), themed(figure, id), CONFIG));
    if (bound || !onPick) return;
    bound = true;
    element.on("plotly_click", ({ points }) => {
      const number = points[0].customdata ?? points[0].data.meta?.number;
      if (number !== undefined) onPick(number);
    });
  }

  dark.addEventListener("change", draw);
  return {
    /** Requests the figure and draws it; false: it was requested again meanwhile. */
    async load() {
      if (!(await service.load())) return false;
      await draw();
      return true;
    },
    pick(number) {
      picked = number;
      return draw();
    },
  };
}

/** Draws every chart in this width; null: in the width of its place. For printing a browser lays out the page, but not
 * drawings. */
function redraw(width) {
  for (const plot of document.querySelectorAll(".js-plotly-plot")) Plotly.relayout(plot, { width, autosize: width === null });
}

addEventListener("beforeprint", () => redraw(PAPER_WIDTH));
addEventListener("afterprint", () => redraw(null));
