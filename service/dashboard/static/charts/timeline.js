// The timeline of trials, and the tree of forks: a section of a job's page, loaded when the reader scrolls to it.

import { feed } from "../shared/feed.js";
import { complaint } from "../shared/problem.js";
import { panel } from "./panel.js";
import {
  endingsDrawn,
  firstOpen,
  forksFigure,
  forksTable,
  mergedTimeline,
  timelineFigure,
  timelineTable,
} from "./timeline_figure.js";

const MIN_INTERVAL_MS = 3000;

export function timeline(base, picking) {
  const element = document.getElementById("timeline");
  const tree = document.getElementById("forks").closest("section");
  let isNear = false;
  let isStale = true;
  let isAsking = false;
  const failure = complaint();

  const service = feed((known) => `${base}/timeline${known ? `?first=${firstOpen(known)}` : ""}`, mergedTimeline);
  const onPick = (number) => picking.pick(number, true);
  const lanes = panel("timeline", "timeline", {
    figure: ({ hidden }) =>
      service.known() && timelineFigure(service.known(), { hidden, picked: picking.number }),
    groups: () => endingsDrawn(service.known().stretches.ending),
    table: () => timelineTable(service.known()),
    note: () => service.known().told.join(" "),
    onPick,
  });
  const forks = panel("forks", "fork", {
    figure: ({ hidden }) =>
      service.known()?.forks.number.length && forksFigure(service.known(), { hidden, picked: picking.number }),
    groups: () => endingsDrawn(service.known().forks.ending),
    table: () => forksTable(service.known()),
    onPick,
  });

  async function draw() {
    element.style.height = `${Math.min(440, Math.max(150, 90 + 26 * service.known().num_lanes))}px`;
    await lanes.draw();
    const { number } = service.known().forks;
    tree.hidden = !number.length;
    if (!number.length) return;
    document.getElementById("forks").style.height = `${Math.min(720, Math.max(240, 90 + 18 * number.length))}px`;
    await forks.draw();
  }

  /** Requests data while the section is visible, but not too often, nor before the last answer has arrived. */
  async function ask() {
    if (!isNear || !isStale || isAsking) return;
    isAsking = true;
    if (service.known()) await new Promise((resolve) => setTimeout(resolve, MIN_INTERVAL_MS));
    isStale = false;
    try {
      if (await service.refresh()) await draw();
      failure.withdraw();
    } catch (error) {
      failure.tell(error);
      isStale = true; // the next event asks again, and who comes back to it
    }
    isAsking = false;
    if (!failure.isTold()) ask();
  }

  new IntersectionObserver(
    (entries) => {
      isNear = entries.at(-1).isIntersecting;
      ask();
    },
    { rootMargin: "200px" },
  ).observe(element);
  picking.listen(() => service.known() && draw());

  return {
    load: async () => {},
    refresh: async (page, events) => {
      if (events !== null && !events.some((event) => event.kind === "trial.state")) return;
      isStale = true;
      ask();
    },
  };
}
