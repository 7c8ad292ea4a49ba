// The learning curves of a job: a section of its page.

import { choose, chosen } from "../shared/address.js";
import { curvesFigure, curvesTable, groupsDrawn, TITLES } from "./curves_figure.js";
import { feed, tellOfTrials } from "../shared/feed.js";
import { complain, forgetProblem } from "../shared/problem.js";
import { panel } from "./panel.js";
import { choiceInWords, merged } from "./points.js";

// The most points of all curves together: above it, they are requested again, thinned.
const MAX_POINTS = 20_000;

/** Fills a <select> with [value, text] pairs, and sets it. */
function offer(select, options, value) {
  if ([...select.options].map((option) => option.value).join() !== options.map(([each]) => each).join()) {
    select.replaceChildren(...options.map(([each, text]) => new Option(text, each)));
  }
  select.value = value;
}

export function curves(base, picking) {
  const metrics = document.getElementById("curve-metric");
  const axes = document.getElementById("curve-axis");

  const service = feed((known) => {
    const query = new URLSearchParams();
    const [metric, x] = [chosen("curve_metric"), chosen("curve_x")];
    if (metric) query.set("metric", metric);
    if (known) query.set("x", known.over);
    else if (x) query.set("x", x);
    if (known) {
      query.set("since", known.event);
      query.set("have", [...known.curves.keys()].join());
    }
    return `${base}/curves?${query}`;
  }, merged);

  function words() {
    const known = service.known();
    const sentences = [choiceInWords(known)];
    if (known.rungs.length) sentences.push(`Dotted: ${known.rungs.length > 1 ? "steps" : "step"} ${known.rungs.join(", ")}, where trials were stopped or paused.`);
    return sentences.filter(Boolean).join(" ");
  }

  const chart = panel("learning-curves", "curve", {
    figure: (choices) => service.known() && curvesFigure(service.known(), { ...choices, picked: picking.number }),
    groups: () => groupsDrawn(service.known()),
    table: () => curvesTable(service.known()),
    note: words,
    things: ["curve", "curves"],
    revision: () => `${service.known().metric}:${service.known().over}`,
    onPick: (number) => picking.pick(number, true),
  });

  async function show() {
    const known = service.known();
    const names = known.metrics.includes(known.metric) ? known.metrics : [known.metric, ...known.metrics];
    offer(metrics, names.map((name) => [name, name]), known.metric);
    offer(axes, known.axes.map((axis) => [axis, TITLES[axis]]), known.over);
    await chart.draw();
  }

  async function load() {
    if (await service.load()) await show();
  }

  function chooseBy(select, name) {
    select.addEventListener("change", () => {
      choose(name, select.value);
      chart.forgetZoom();
      forgetProblem();
      load().catch(complain);
    });
  }
  chooseBy(metrics, "curve_metric");
  chooseBy(axes, "curve_x");
  picking.listen(() => chart.draw());

  return {
    load,
    refresh: async (page, events) => {
      if (!tellOfTrials(events)) return;
      const drawn = [...(service.known()?.curves.values() ?? [])];
      // A job without data has no axes yet that could be kept.
      const isWhole = !drawn.length || drawn.reduce((sum, curve) => sum + curve.y.length, 0) > MAX_POINTS;
      if (await (isWhole ? service.load() : service.refresh())) await show();
    },
  };
}
