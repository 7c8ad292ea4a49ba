// The charts of a job: a section of its page.

import { chart } from "../shared/charts.js";
import { api, complain } from "./asking.js";

/** Has the buttons with an attribute `data-<name>` choose one of its values, and a chart drawn by it. */
function switched(name, drawn, choose) {
  const buttons = [...document.querySelectorAll(`button[data-${name}]`)];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      choose(button.dataset[name]);
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      drawn.load().catch(complain);
    });
  }
}

/** `picking` holds the trial that the reader looks at. */
export function charts(picking) {
  let axis = "trials";
  let against = null; // what the trade-off is drawn over; null: the job's second objective
  const pick = (number) => picking.pick(number, true);
  const best = chart("best-so-far", () => `${api}/plots/best-so-far?x=${axis}`);
  const curves = chart("learning-curves", () => `${api}/plots/learning-curves`, pick);
  const tradeOff =
    document.getElementById("trade-off") &&
    chart("trade-off", () => `${api}/plots/trade-off${against ? `?against=${encodeURIComponent(against)}` : ""}`, pick);
  const all = [best, curves, ...(tradeOff ? [tradeOff] : [])];

  switched("axis", best, (value) => (axis = value));
  switched("against", tradeOff, (value) => (against = value));
  picking.listen((number) => curves.pick(number));

  const load = () => Promise.all(all.map((one) => one.load()));
  return { load, refresh: load };
}
