// A chart with its controls: buttons that hide groups, a logarithmic scale, a button for outliers, a table of its data, and
// its choices and zoom in the page's address.

import { choose, chosen } from "../shared/address.js";
import { CONFIG, dark, themed } from "../shared/charts.js";
import { inTurn, plotly } from "../shared/plotly.js";
import { barsOf } from "./bars.js";
import { outliersInWords } from "./outliers.js";

const AXES = ["xaxis", "yaxis"];

function readZoom(key) {
  const values = (chosen(`${key}_zoom`) ?? "").split(",").map((text) => (text === "" ? NaN : Number(text)));
  return AXES.map((_, index) => values.slice(2 * index, 2 * index + 2)).map((range) =>
    range.length === 2 && range.every(Number.isFinite) ? range : null,
  );
}

function writeZoom(key, zoom) {
  const text = zoom.map((range) => (range ? range.map((end) => Number(end.toPrecision(5))).join(",") : ",")).join(",");
  choose(`${key}_zoom`, zoom.some(Boolean) ? text : null);
}

/** Rows of a table, each cell a text or a node; the first cell is the row's header, the first `num_texts` are not
 * numbers. */
function filledTable(caption, { head, rows, num_texts }) {
  const table = document.createElement("table");
  table.createCaption().textContent = caption;
  const cell = (row, name, value, attributes) => {
    const made = Object.assign(document.createElement(name), attributes);
    made.append(value);
    row.append(made);
  };
  const top = table.createTHead().insertRow();
  const kind = (column) => (column < num_texts ? "" : "num");
  head.forEach((text, column) => cell(top, "th", text, { scope: "col", className: kind(column) }));
  const body = table.createTBody();
  for (const [first, ...rest] of rows) {
    const row = body.insertRow();
    cell(row, "th", first, { scope: "row" });
    rest.forEach((value, index) => cell(row, "td", value, { className: kind(index + 1) }));
  }
  return table;
}

/**
 * The chart in the element `id`, its choices in the address under names that begin with `key`.
 *
 * `figure({scale, hidden, isWhole})` gives data, layout and, of some charts, the bars of `bars.js` or the outliers of
 * `outliers.js`, or null while there is nothing to draw; `groups()` those of the legend; `table()` head and rows, and how
 * many columns of it begin as texts; `note()` a sentence below; `things` are the words for one and for many of what is
 * drawn; `revision()` names what is drawn over which axes: zoom is kept as long as it is the same.
 * `onPick(number)` gets the trial that was clicked.
 */
export function panel(id, key, { figure, groups, table, note = () => "", things = [], revision = () => "", onPick = null }) {
  const element = document.getElementById(id);
  const section = element.closest("section");
  const part = (name) => section.querySelector(`[data-part="${name}"]`);
  const hidden = new Set((chosen(`${key}_hide`) ?? "").split(",").filter(Boolean));
  let scale = chosen(`${key}_scale`);
  let isWhole = chosen(`${key}_outliers`) === "true";
  let zoom = readZoom(key);
  const showBars = barsOf(element);
  let isBound = false;
  let showsTable = chosen(`${key}_table`) === "true";

  function drawLegend() {
    const legend = part("legend");
    if (!legend) return;
    const wanted = groups();
    const there = new Map([...legend.children].map((button) => [button.dataset.group, button]));
    const buttons = wanted.map((group) => {
      const button = there.get(group.key) ?? document.createElement("button");
      if (!there.has(group.key)) {
        Object.assign(button, { type: "button", className: "group" });
        button.dataset.group = group.key;
        const line = Object.assign(document.createElement("span"), { className: "line", ariaHidden: "true" });
        line.dataset.dash = group.dash;
        line.style.color = group.colour;
        button.append(line, group.label);
      }
      button.setAttribute("aria-pressed", String(!hidden.has(group.key)));
      return button;
    });
    if (buttons.length !== legend.children.length || buttons.some((button, index) => button !== legend.children[index])) {
      legend.replaceChildren(...buttons);
    }
  }

  function drawTable() {
    const place = part("table");
    const button = part("as-table");
    button?.setAttribute("aria-pressed", String(showsTable));
    place.hidden = !showsTable;
    if (showsTable) {
      const { scrollTop, scrollLeft } = place;
      place.replaceChildren(filledTable(place.getAttribute("aria-label"), table()));
      Object.assign(place, { scrollTop, scrollLeft });
    } else place.replaceChildren();
  }

  async function draw() {
    const found = figure({ scale, hidden, isWhole });
    if (!found) return;
    const { data, layout, bars, outliers = null } = found;
    element.classList.toggle("nothing", data.length === 0);
    element.classList.toggle("put-away", data.length === 0 && groups().some((group) => hidden.has(group.key)));
    part("scale")?.setAttribute("aria-pressed", String(layout.yaxis.type === "log"));
    if (part("outliers")) {
      part("outliers").hidden = !outliers;
      part("outliers").setAttribute("aria-pressed", String(isWhole));
    }
    const leftOut = outliers && !isWhole ? outliersInWords(outliers, things) : "";
    if (part("note")) part("note").textContent = [note(), leftOut].filter(Boolean).join(" ");
    drawLegend();
    drawTable();
    const drawn = themed({ data, layout }, `${id}:${revision()}:${layout.yaxis.type}:${isWhole}`);
    // A finger scrolls the page.
    drawn.dragmode = matchMedia("(pointer: coarse)").matches ? false : "zoom";
    AXES.forEach((axis, index) => {
      if (zoom[index]) Object.assign(drawn[axis], { range: [...zoom[index]], autorange: false });
    });
    const Plotly = await plotly();
    await inTurn(async () => {
      await Plotly.react(element, data, drawn, CONFIG);
      if (bars) showBars(bars);
    });
    if (isBound) return;
    isBound = true;
    element.on("plotly_relayout", (change) => {
      if (!Object.keys(change).some((name) => name.includes("axis"))) return;
      zoom = AXES.map((axis) => (element.layout[axis].autorange === false ? [...element.layout[axis].range] : null));
      writeZoom(key, zoom);
    });
    element.on("plotly_click", ({ points }) => {
      const number = points[0].customdata;
      if (onPick && number !== undefined && number !== null) onPick(number);
    });
  }

  function forgetZoom() {
    zoom = [null, null];
    writeZoom(key, zoom);
  }

  part("legend")?.addEventListener("click", (event) => {
    const group = event.target.closest("button")?.dataset.group;
    if (group === undefined) return;
    if (!hidden.delete(group)) hidden.add(group);
    choose(`${key}_hide`, hidden.size ? [...hidden].join(",") : null);
    draw();
  });
  part("scale")?.addEventListener("click", () => {
    scale = part("scale").getAttribute("aria-pressed") === "true" ? "linear" : "log";
    choose(`${key}_scale`, scale);
    forgetZoom();
    draw();
  });
  part("outliers")?.addEventListener("click", () => {
    isWhole = !isWhole;
    choose(`${key}_outliers`, isWhole ? "true" : null);
    forgetZoom();
    draw();
  });
  part("as-table")?.addEventListener("click", () => {
    showsTable = !showsTable;
    choose(`${key}_table`, showsTable ? "true" : null);
    drawTable();
  });
  dark.addEventListener("change", draw);
  return { draw, forgetZoom };
}
