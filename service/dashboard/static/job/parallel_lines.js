// The lines of parallel coordinates on a canvas: thousands of them, drawn in slices, so that the page stays responsive.

const SLICE_MS = 12;
const SHADES = 24;

const nextFrame = () => new Promise((resolve) => requestAnimationFrame(resolve));

function parsed(colour) {
  return [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
}

/** `SHADES` colours from one to another, both as #rrggbb. */
function shades(from, to) {
  const [a, b] = [parsed(from), parsed(to)];
  return Array.from({ length: SHADES }, (_, index) => {
    const part = index / (SHADES - 1);
    return `rgb(${a.map((channel, n) => Math.round(channel + part * (b[n] - channel))).join(" ")})`;
  });
}

/** The colours of the page in its current mode, light or dark. */
export function palette() {
  const style = getComputedStyle(document.getElementById("parallel"));
  const colour = (name) => style.getPropertyValue(name).trim();
  return {
    shades: shades(colour("--best-line"), colour("--worst-line")),
    search: colour("--search"),
    baseline: colour("--baseline"),
    confirmation: colour("--completed"),
    pruned: colour("--pruned"),
    diverged: colour("--failed"),
    running: colour("--running"),
    other: colour("--cancelled"),
    picked: colour("--text"),
    left: colour("--track"),
  };
}

/** The colour of a trial: by its value, the best strongest, or by its side; a trial that did not complete has the
 * colour of its state. */
export function colourOf(trial, by, colours) {
  if (trial.state === "pruned" || trial.state === "diverged" || trial.state === "running") return colours[trial.state];
  if (trial.state !== "completed") return colours.other;
  if (by === "side") return colours[trial.phase];
  return colours.shades[Math.min(SHADES - 1, Math.floor(Math.sqrt(trial.rank) * SHADES))]; // few are strong
}

function trace(context, xs, ys, index) {
  context.beginPath();
  context.moveTo(xs[0], ys[0][index]);
  for (let axis = 1; axis < xs.length; axis += 1) context.lineTo(xs[axis], ys[axis][index]);
  context.stroke();
}

/** Gives a canvas the screen's resolution; returns its empty context, in CSS pixels. */
function prepared(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.lineJoin = "round";
  return context;
}

/**
 * Draws all lines off screen, filtered-out ones faintly and below the others, and shows them when they are done.
 * `geometry` is {width, height, xs, ys}: a position for each axis, and on it one for each trial. Stops when
 * `isCurrent()` is false.
 */
export async function drawLines(canvas, geometry, trials, { order, isWanted, by, isCurrent }) {
  const { width, height, xs, ys } = geometry;
  const colours = palette();
  const sheet = document.createElement("canvas");
  const context = prepared(sheet, width, height);
  const numWanted = isWanted.reduce((sum, one) => sum + one, 0);
  const isFiltered = numWanted < trials.length;
  const strength = Math.min(0.9, Math.max(0.1, 5 / Math.sqrt(numWanted + 1)));
  let began = performance.now();

  for (const isFront of [false, true]) {
    if (!isFront && !isFiltered) continue;
    for (const index of order) {
      if (Boolean(isWanted[index]) !== isFront) continue;
      const trial = trials[index];
      const isWhole = trial.state === "completed";
      context.lineWidth = isFront && isWhole && trial.rank < 0.02 ? 1.8 : 1;
      context.globalAlpha = isFront ? strength * (isWhole ? 1 + (1 - trial.rank) : 0.7) : 0.3;
      context.strokeStyle = isFront ? colourOf(trial, by, colours) : colours.left;
      trace(context, xs, ys, index);
      if (isFront && trial.state === "diverged") {
        context.fillStyle = colours.diverged;
        context.fillRect(xs.at(-1) - 3, ys.at(-1)[index] - 3, 6, 6);
      }
      if (performance.now() - began > SLICE_MS) {
        await nextFrame();
        if (!isCurrent()) return;
        began = performance.now();
      }
    }
  }
  prepared(canvas, width, height).drawImage(sheet, 0, 0, width, height);
}

/** Draws some lines strongly, with their points: the picked trial, and the one under the pointer. */
export function drawFront(canvas, { width, height, xs, ys }, indices) {
  const context = prepared(canvas, width, height);
  const colours = palette();
  for (const index of indices) {
    context.strokeStyle = context.fillStyle = colours.picked;
    context.lineWidth = 2.5;
    trace(context, xs, ys, index);
    xs.forEach((x, axis) => context.fillRect(x - 3, ys[axis][index] - 3, 6, 6));
  }
}

/** The wanted line nearest to a point, no further than `reach` pixels; null: there is none. */
export function nearest({ xs, ys }, isWanted, x, y, reach = 8) {
  const axis = Math.min(xs.length - 2, Math.max(0, xs.findIndex((place) => place > x) - 1));
  const part = Math.min(1, Math.max(0, (x - xs[axis]) / (xs[axis + 1] - xs[axis])));
  const [left, right] = [ys[axis], ys[axis + 1]];
  let [best, found] = [reach, null];
  for (let index = 0; index < isWanted.length; index += 1) {
    if (!isWanted[index]) continue;
    const distance = Math.abs(left[index] + part * (right[index] - left[index]) - y);
    if (distance < best) [best, found] = [distance, index];
  }
  return found;
}
