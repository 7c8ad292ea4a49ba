// Jobs side by side: one chart of their best values so far, live while one of them runs.

import { choose, chosen } from "../shared/address.js";
import { chart } from "../shared/charts.js";
import { fetchPage, follow } from "../shared/live.js";
import { patchLive } from "../shared/patch.js";
import { complain, complaint, forgetProblem } from "../shared/problem.js";
import { keepTimes } from "../shared/times.js";

const AXES = ["trials", "seconds", "device-seconds"];

const plot = document.getElementById("best-so-far");
let axis = AXES.includes(chosen("x")) ? chosen("x") : AXES[0];
const drawn =
  plot && chart("best-so-far", () => `/compare/best-so-far?x=${axis}&jobs=${encodeURIComponent(plot.dataset.jobs)}`);

const buttons = [...document.querySelectorAll("button[data-axis]")];

function press() {
  for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.axis === axis));
}

for (const button of buttons) {
  button.addEventListener("click", () => {
    axis = button.dataset.axis;
    choose("x", axis === AXES[0] ? null : axis);
    press();
    forgetProblem();
    drawn.load().catch(complain);
  });
}

press();
const failure = complaint(); // of the chart, to draw itself
drawn?.load().catch(failure.tell);
keepTimes();

const compared = document.getElementById("compared");
if (compared && compared.dataset.over !== "true") {
  follow("/v1/events", async () => {
    const next = await fetchPage();
    patchLive(next);
    if (plot) plot.dataset.nothing = next.getElementById(plot.id).dataset.nothing;
    await drawn?.load();
    failure.withdraw();
    return compared.dataset.over !== "true";
  });
}
