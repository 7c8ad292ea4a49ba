// Parallel coordinates: a section of a job's page. Each trial is a line through its parameters to its value. A chosen
// range of an axis also filters the table of trials; the same ranges can be typed under the table's "Parameters".

import { chosen, choose } from "../shared/address.js";
import { brushes, drawAxes } from "./parallel_axes.js";
import { colourOf, drawFront, drawLines, nearest, palette } from "./parallel_lines.js";
import { choiceScale, choiceText, numberScale, short } from "./parallel_scale.js";
import { refusal, request } from "../shared/session.js";

const MIN_GAP = 92;
const SIDE = 62;
const HEAD = 64;
const HEIGHT = 370;
const FEW = 500; // trials that are all read again; of more, those that may have changed
const REFRESH_MS = 3000;
const UNFINISHED = ["queued", "running"];

const nextFrame = () => new Promise((resolve) => requestAnimationFrame(resolve));

/** `picking` holds the picked trial, `filters` the filters of the trials. */
export function parallel(picking, filters) {
  const element = document.getElementById("parallel");
  if (!element) return { load: async () => {}, refresh: async () => {} };
  const [canvas, front] = element.querySelectorAll("canvas");
  const svg = element.querySelector("svg");
  const names = element.querySelector(".names");
  const note = document.getElementById("parallel-note");
  const buttons = [...document.querySelectorAll("button[data-colour]")];
  const section = document.getElementById("parallel-section"); // hidden until there is a trial
  const path = `/jobs/${encodeURIComponent(document.getElementById("job").dataset.jobId)}/parallel`;

  let data = null; // as the server has it, and {trials, axes, order, isWanted}
  let layout = null;
  let hovered = null;
  let turn = 0;
  let timer = null;
  let updated = Promise.resolve();
  let readAt = 0;
  let isNear = false;
  let by = chosen("colour") === "side" ? "side" : "value";

  async function read(first) {
    const response = await request(`${path}?first=${first}`, { headers: { Accept: "application/json" } });
    if (!response.ok) throw new Error(`The parallel coordinates could not be read: ${await refusal(response)}`);
    return response.json();
  }

  /** Updates the data, after any update that is already running: a late answer would restore old data. */
  function update() {
    updated = updated.catch(() => {}).then(readNew);
    return updated;
  }

  /** If there are many trials, reads only those from the first unfinished one on. */
  async function readNew() {
    readAt = Date.now();
    const unfinished = data?.states.findIndex((state) => UNFINISHED.includes(state)) ?? -1;
    const kept = data === null || data.numbers.length < FEW ? 0 : unfinished < 0 ? data.numbers.length : unfinished;
    let next = await read(kept && data.numbers[kept - 1] + 1);
    if (kept && next.unfinished_before) next = await read(0); // an earlier one is tried again
    else if (kept) {
      for (const name of ["numbers", "phases", "states", "values"]) next[name] = [...data[name].slice(0, kept), ...next[name]];
      next.parameters = next.parameters.map((column, axis) => [...data.parameters[axis].slice(0, kept), ...column]);
      next.value_scale = data.value_scale;
    }
    await nextFrame();
    data = prepared(next);
    await draw();
  }

  function prepared(next) {
    const ended = next.values.filter((value, index) => value !== null && next.states[index] === "completed");
    const sorted = Float64Array.from(ended).sort();
    if (next.direction === "maximize") sorted.reverse();
    const rankOf = new Map();
    sorted.forEach((value, index) => rankOf.has(value) || rankOf.set(value, index / sorted.length));
    const trials = next.numbers.map((number, index) => ({
      number,
      phase: next.phases[index],
      state: next.states[index],
      value: next.values[index],
      rank: rankOf.get(next.values[index]) ?? 1,
    }));
    const parameters = next.axes.map((axis, index) => ({ name: axis.name, title: axis.name, values: next.parameters[index], scale: scaleOf(axis, next.parameters[index]) }));
    const bounds = [Math.min(sorted[0], sorted.at(-1)), Math.max(sorted[0], sorted.at(-1))];
    const scale = sorted.length ? numberScale(next.value_scale, ...bounds) : { ...numberScale("linear", 0, 1), ticks: [] };
    const objective = { name: "", title: next.metric, values: next.values, scale };
    const weight = (trial) => (trial.state === "completed" ? 2 - trial.rank : trial.state === "running" ? 0.9 : trial.state === "diverged" ? 0.5 : 0);
    const weights = Float64Array.from(trials, weight);
    const order = Uint32Array.from(trials.keys()).sort((a, b) => weights[a] - weights[b]);
    return { ...next, trials, axes: [...parameters, objective], order, isWanted: new Uint8Array(trials.length) };
  }

  function scaleOf(axis, values) {
    if (axis.choices.length) return choiceScale(axis.choices);
    let [low, high] = [axis.low, axis.high];
    for (const value of values) {
      if (typeof value !== "number" || (axis.scale === "log" && value <= 0) || (axis.scale === "reverse_log" && value >= 1)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    return numberScale(axis.scale, low, high);
  }

  /** Records which trials pass the filters. */
  function sift() {
    const states = new Set(filters.states());
    const phase = filters.phase();
    const tests = data.axes.flatMap(({ name, scale, values }) => {
      if (scale.choices) {
        const choice = filters.choice(name);
        return choice === "" ? [] : [(index) => choiceText(values[index]) === choice];
      }
      const [low, high] = filters.range(name);
      if (low === null && high === null) return [];
      return [(index) => typeof values[index] === "number" && values[index] >= (low ?? -Infinity) && values[index] <= (high ?? Infinity)];
    });
    data.trials.forEach((trial, index) => {
      const state = trial.state === "diverged" ? "failed" : trial.state;
      const isLeft = (states.size === 0 || states.has(state)) && (phase === "" || trial.phase === phase);
      data.isWanted[index] = Number(isLeft && tests.every((test) => test(index)));
    });
  }

  /** The positions of the axes, and of each trial on them; the same object as before if nothing has changed. */
  function arranged() {
    const { axes, trials } = data;
    const width = Math.max(element.parentNode.clientWidth, 2 * SIDE + MIN_GAP * (axes.length - 1));
    if (layout?.of === data && layout.width === width) return layout;
    const hasGaps = axes.some(({ scale, values }) => values.includes(null) && scale.place(null) === null);
    const foot = HEIGHT - (hasGaps ? 40 : 16);
    const xs = axes.map((_, index) => SIDE + (index * (width - 2 * SIDE)) / Math.max(1, axes.length - 1));
    const none = hasGaps ? HEIGHT - 14 : null;
    const ys = axes.map(({ scale, values }) => Float32Array.from(trials, (_, index) => {
      const at = scale.place(values[index]);
      return at === null ? (none ?? foot) : foot - at * (foot - HEAD);
    }));
    return { of: data, width, height: HEIGHT, xs, ys, foot, head: HEAD, none };
  }

  async function draw() {
    const own = ++turn;
    if (!data) return;
    const isCurrent = () => own === turn;
    sift();
    layout = arranged();
    element.style.width = `${layout.width}px`;
    element.style.height = `${layout.height}px`;
    if (!axesBrushed.isDragging()) drawAxes(svg, names, data.axes, layout, filters);
    drawPicked();
    tell();
    await nextFrame();
    if (isCurrent()) await drawLines(canvas, layout, data.trials, { order: data.order, isWanted: data.isWanted, by, isCurrent });
  }

  function drawPicked() {
    if (!data || !layout) return;
    const picked = data.numbers.indexOf(picking.number);
    drawFront(front, layout, [...(picked < 0 ? [] : [picked]), ...(hovered === null ? [] : [hovered])]);
    element.dataset.picked = picked < 0 ? "" : picking.number;
  }

  /** Says how many lines there are, or which one is under the pointer. */
  function tell() {
    const left = data.isWanted.reduce((sum, one) => sum + one, 0);
    element.dataset.lines = left;
    if (hovered !== null) {
      const { number, value, state } = data.trials[hovered];
      note.textContent = `Trial ${number}: ${value === null ? "no value" : short(value, 4)}, ${state}. A click picks it.`;
    } else note.textContent = left === data.trials.length ? "" : `${left.toLocaleString("en")} of ${data.trials.length.toLocaleString("en")} trials are chosen.`;
    const colours = palette();
    for (const mark of document.querySelectorAll("#parallel-legend [data-line]")) {
      const [state, phase] = mark.dataset.line.split(" ");
      const isShown = phase === undefined || by === "side";
      mark.hidden = !isShown || !data.trials.some((trial) => trial.state === state && (phase === undefined || trial.phase === phase));
      mark.style.setProperty("--line", colourOf({ state, phase, rank: 0 }, by, colours));
    }
    document.getElementById("parallel-ramp").hidden = by === "side" || !data.states.includes("completed");
  }

  function hover(event) {
    if (!data || axesBrushed.isDragging()) return;
    const box = svg.getBoundingClientRect();
    const isOver = event.type !== "pointerleave" && !event.target.closest?.(".grasp");
    const found = isOver ? nearest(layout, data.isWanted, event.clientX - box.left, event.clientY - box.top) : null;
    if (found === hovered) return;
    hovered = found;
    svg.classList.toggle("over", found !== null);
    drawPicked();
    tell();
  }

  function colour(wanted) {
    by = wanted;
    choose("colour", by === "side" ? by : null);
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.colour === by));
    draw();
  }

  const axesBrushed = brushes(svg, () => ({ axes: data.axes, layout }), filters);
  svg.addEventListener("pointermove", hover);
  svg.addEventListener("pointerleave", hover);
  svg.addEventListener("click", () => hovered !== null && picking.pick(data.trials[hovered].number, true));
  for (const button of buttons) button.addEventListener("click", () => colour(button.dataset.colour));
  for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.colour === by));
  picking.listen(drawPicked);
  filters.watch(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  new ResizeObserver(draw).observe(element.parentNode);

  /** Reads what is new, at most once in a while. */
  function renew() {
    const wait = readAt + REFRESH_MS - Date.now();
    if (wait <= 0) return update();
    timer ??= setTimeout(() => {
      timer = null;
      update().catch(() => {}); // the next event asks again
    }, wait);
    return null;
  }

  // Ten thousand trials are a megabyte, which is not loaded for readers who do not scroll down to here.
  const observer = new IntersectionObserver(([entry]) => {
    if (!entry.isIntersecting) return;
    observer.disconnect();
    isNear = true;
    update().catch((error) => (note.textContent = error.message));
  }, { rootMargin: "200px" });

  return {
    load: async () => observer.observe(element.parentNode),
    async refresh() {
      if (document.getElementById("moment").dataset.trials !== "0") section.hidden = false;
      return isNear && renew();
    },
  };
}
