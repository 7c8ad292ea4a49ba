// The best value found so far: a section of a job's page.

import { choose, chosen } from "../shared/address.js";
import { mergedBest } from "./best_data.js";
import { bestFigure, bestTable, equalInWords, sidesDrawn } from "./best_figure.js";
import { feed } from "../shared/feed.js";
import { panel } from "./panel.js";

export function best(base) {
  const buttons = [...document.querySelectorAll("button[data-axis]")];
  let axis = chosen("best_x") === "seconds" ? "seconds" : "trials";

  const service = feed(
    (known) => `${base}/best${known ? `?since=${known.event}&finished=${known.finished}` : ""}`,
    mergedBest,
  );
  const chart = panel("best-so-far", "best", {
    figure: (choices) => service.known() && bestFigure(service.known(), { ...choices, axis }),
    groups: () => sidesDrawn(service.known()),
    table: () => bestTable(service.known()),
    note: () => equalInWords(service.known()),
    things: ["trial", "trials"],
    revision: () => axis,
  });

  function press() {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.axis === axis));
  }
  for (const button of buttons) {
    button.addEventListener("click", () => {
      axis = button.dataset.axis;
      choose("best_x", axis === "trials" ? null : axis);
      press();
      chart.forgetZoom();
      chart.draw();
    });
  }
  press();

  return {
    load: async () => {
      if (await service.load()) await chart.draw();
    },
    refresh: async (page, events) => {
      // Measurements of running trials change nothing here.
      const turned = events?.some((event) => event.kind === "trial.state");
      if (events !== null && !turned) return;
      if (await service.refresh()) await chart.draw();
    },
  };
}
