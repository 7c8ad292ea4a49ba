// The charts of a job: a section of its page.

import { best } from "../charts/best.js";
import { curves } from "../charts/curves.js";
import { timeline } from "../charts/timeline.js";
import { chart } from "../shared/charts.js";
import { complain, forgetProblem } from "../shared/problem.js";
import { api } from "./asking.js";

/** Lets the buttons with an attribute `data-<name>` choose one of its values, by which a chart is drawn. */
function switched(name, drawn, choose) {
  const buttons = [...document.querySelectorAll(`button[data-${name}]`)];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      choose(button.dataset[name]);
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      forgetProblem();
      drawn.load().catch(complain);
    });
  }
}

/** The trade-off of several objectives, drawn by the API. */
function tradeOff(picking) {
  let against = null; // null: the job's second objective
  const query = () => (against ? `?against=${encodeURIComponent(against)}` : "");
  const drawn = chart("trade-off", () => `${api}/plots/trade-off${query()}`, (number) => picking.pick(number, true));
  switched("against", drawn, (value) => (against = value));
  const isOfInterest = (event) => event.kind === "trial.state" && event.data.state === "completed";
  return {
    load: drawn.load,
    refresh: async (page, events) => {
      if (events === null || events.some(isOfInterest)) await drawn.load();
    },
  };
}

/** `picking` holds the trial that the reader looks at. */
export function charts(picking) {
  const base = `/jobs/${encodeURIComponent(document.getElementById("job").dataset.jobId)}/charts`;
  const all = [best(base), curves(base, picking), timeline(base, picking)];
  if (document.getElementById("trade-off")) all.push(tradeOff(picking));
  return {
    load: () => Promise.all(all.map((one) => one.load())),
    refresh: (page, events) => Promise.all(all.map((one) => one.refresh(page, events))),
  };
}
