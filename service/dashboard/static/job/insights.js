// What mattered: the importance of parameters, the trials over one of them, and maps over two. A section of a job's
// page.

import { choose, chosen } from "../shared/address.js";
import { chart } from "../shared/charts.js";
import { complain, forgetProblem } from "../shared/problem.js";
import { tabulate } from "../shared/tables.js";
import { api } from "./asking.js";

const get = (id) => document.getElementById(id);

const panels = () => [...document.querySelectorAll(".insight-panel")];

const parametersOf = (panel) => [...panel.querySelectorAll("[data-parameter]")].map((button) => button.dataset.parameter);

/** Fills a <select> with these values, and keeps the choice. */
function offer(select, values) {
  const known = [...select.options].map((option) => option.value);
  if (known.length === values.length && known.every((value, index) => value === values[index])) return;
  select.replaceChildren(...values.map((value) => new Option(value, value)));
}

const told = ({ shown, of }) => (shown < of ? `${shown.toLocaleString("en")} of ${of.toLocaleString("en")} trials drawn` : "");

/** `picking` holds the picked trial. */
export function insights(picking) {
  const pick = (number) => picking.pick(number, true);
  const [sliced, x, y] = [get("slice-parameter"), get("map-x"), get("map-y")];
  let pair = []; // the parameters of the map
  let drawn = null; // when what is drawn was computed
  const query = (values) => new URLSearchParams({ side: side(), ...values });
  const slice = chart("insight-slice", () => `${api}/plots/slice?${query({ parameter: sliced.value })}`, pick);
  const map = chart("insight-map", () => `${api}/plots/map?${query({ x: x.value, y: y.value })}`, pick);

  /** The side that the address names, or the first with insights. */
  function side() {
    const telling = panels().find((panel) => parametersOf(panel).length);
    return panels().some((panel) => panel.dataset.side === chosen("insights")) ? chosen("insights") : (telling?.dataset.side ?? "");
  }

  /** Shows the chosen side and its choices; true if there is anything to draw. */
  function arrange() {
    const own = panels().find((panel) => panel.dataset.side === side());
    for (const panel of panels()) panel.hidden = panel !== own;
    for (const button of document.querySelectorAll("[data-insight-side]")) {
      button.setAttribute("aria-pressed", String(button.dataset.insightSide === side()));
    }
    const names = own ? parametersOf(own) : [];
    get("insight-charts").hidden = !names.length;
    if (!names.length) return false;
    const known = (name, otherwise) => (names.includes(chosen(name)) ? chosen(name) : otherwise);
    for (const select of [sliced, x, y]) offer(select, names);
    sliced.value = known("slice", names[0]);
    x.value = known("map-x", names[0]);
    y.value = known("map-y", names.find((name) => name !== x.value) ?? names[0]);
    if (x.value === y.value && names.length > 1) y.value = names.find((name) => name !== x.value);
    y.closest("div").hidden = names.length < 2;
    pair = [x.value, y.value];
    return true;
  }

  async function drawSlice() {
    if (!(await slice.load())) return;
    const { meta } = get("insight-slice").layout;
    tabulate(get("slice-table"), meta.table);
    get("slice-good").hidden = !meta.has_good;
    get("slice-bad").hidden = !meta.has_bad;
    get("slice-shown").textContent = told(meta);
  }

  async function drawMap() {
    if (x.value === y.value) return;
    if (!(await map.load())) return;
    const { meta } = get("insight-map").layout;
    tabulate(get("map-table"), meta.table);
    const ground = meta.table.rows.length ? "" : "Only the trials: how well others nearby do is computed for the strongest parameters.";
    get("map-note").textContent = [ground, told(meta)].filter(Boolean).join(" ");
  }

  async function draw() {
    drawn = get("insight-panels").dataset.computed;
    try {
      if (arrange()) await Promise.all([drawSlice(), drawMap()]);
    } catch (error) {
      drawn = null; // it is drawn with the next refresh
      throw error;
    }
  }

  /** Writes choices into the address and draws the result. */
  function chooses(choices, draw) {
    for (const [name, value] of Object.entries(choices)) choose(name, value);
    arrange();
    forgetProblem();
    draw().catch(complain);
  }

  sliced.addEventListener("change", () => chooses({ slice: sliced.value }, drawSlice));
  for (const [select, other] of [[x, y], [y, x]]) {
    select.addEventListener("change", () => {
      // If both choices name the same parameter, the other choice gets the previous one.
      if (select.value === other.value) other.value = pair.find((name) => name !== select.value);
      chooses({ "map-x": x.value, "map-y": y.value }, drawMap);
    });
  }

  get("insights").addEventListener("click", ({ target }) => {
    const look = target.closest("[data-parameter]");
    const other = target.closest("[data-insight-side]");
    if (look) {
      chooses({ slice: look.dataset.parameter }, drawSlice);
      get("insight-slice").scrollIntoView({ block: "nearest" });
    } else if (other) {
      chooses({ insights: other.dataset.insightSide, slice: null, "map-x": null, "map-y": null }, draw);
    }
  });

  return {
    load: draw,
    async refresh() {
      arrange(); // the page came anew
      if (get("insight-panels").dataset.computed !== drawn) await draw();
    },
  };
}
