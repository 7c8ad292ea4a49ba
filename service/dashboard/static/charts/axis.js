// Axes: when a logarithmic one is used, its ticks, and texts escaped for Plotly.

const LOG_SPAN = 10;
const MAX_TICKS = 12;
const LEAST_SPAN = 1e-3; // of the largest value, as in service/api/figures/axes.py

/** A text that Plotly shows literally: otherwise it interprets HTML tags and `%{...}`. */
export function literal(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll("%{", "&#37;{");
}

function ends(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value === null) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/** Plotly's own ticks leave out the power of ten between two powers: it labels 0.2 as "2". */
function logTicks(low, high) {
  const first = Math.floor(Math.log10(low));
  const exponents = Array.from({ length: Math.ceil(Math.log10(high)) - first + 1 }, (_, index) => first + index);
  const digits = 3 * exponents.length <= MAX_TICKS ? [1, 2, 5] : [1];
  const stride = Math.ceil((digits.length * exponents.length) / MAX_TICKS);
  return exponents.filter((_, index) => index % stride === 0).flatMap((n) => digits.map((digit) => Number(`${digit}e${n}`)));
}

/** A number as in Python's `%g`: 0.5, 200000, 5e9. */
function tickText(tick) {
  return Math.abs(tick) >= 1e6 || Math.abs(tick) < 1e-4 ? tick.toExponential().replace("e+", "e") : String(Number(tick.toPrecision(6)));
}

const MARGIN_BEYOND = 0.05; // of the axis's length, as Plotly leaves beside the last value

/** {clipmin, clipmax}: the ends of an axis for values from `low` to `high` that has more points. */
function clipped(low, high, isLog) {
  const [least, most] = isLog ? [Math.log10(low), Math.log10(high)] : [low, high];
  const beyond = MARGIN_BEYOND * (most - least);
  const [clipmin, clipmax] = [least - beyond, most + beyond].map((end) => (isLog ? 10 ** end : end));
  return { clipmin, clipmax };
}

/**
 * {type, ...} of a value axis. `wanted`: "log", "linear", or null: logarithmic for positive values far apart. `outliers`:
 * those that are left out, as `outliersOf` has them, or null.
 */
export function valueAxis(all, wanted = null, outliers = null) {
  const isLeftOut = (value) => value !== null && (outliers.isAbove ? value > outliers.end : value < outliers.end);
  const values = outliers ? all.filter((value) => !isLeftOut(value)) : all;
  const [low, high] = ends(values);
  const isPositive = low > 0 && high < Infinity;
  const isLog = isPositive && (wanted === null ? high / low > LOG_SPAN : wanted === "log");
  const small = values.every((value) => value === null || value === 0 || (Math.abs(value) >= 1e-4 && Math.abs(value) < 1e6));
  const axis = { type: isLog ? "log" : "linear", exponentformat: small ? "none" : "power" };
  const largest = Math.max(Math.abs(low), Math.abs(high));
  if (high - low < LEAST_SPAN * largest) {
    // Otherwise Plotly would spread a single value, or rounding, over the whole height.
    const [least, most] = [low - largest / 20, high + largest / 20];
    axis.autorangeoptions = { include: [least, most], clipmin: least, clipmax: most };
  } else if (outliers) axis.autorangeoptions = clipped(low, high, isLog);
  if (!isLog) return axis;
  const ticks = logTicks(low, high);
  return { ...axis, tickmode: "array", tickvals: ticks, ticktext: ticks.map(tickText) };
}

/** A value with four significant digits; a dash for none. */
export function number(value) {
  if (value === null || value === undefined) return "–";
  const text = Math.abs(value) >= 1e4 && Math.abs(value) < 1e6 ? value.toFixed(0) : value.toPrecision(4);
  return text.includes("e") ? Number(value).toExponential(3) : text;
}

export const MARGIN = { l: 56, r: 12, t: 8, b: 44 };

export function layoutOf(x, y) {
  return {
    xaxis: { zeroline: false, automargin: true, ...x },
    yaxis: { zeroline: false, automargin: true, ...y, title: { text: y.title, standoff: 12 } },
    margin: MARGIN,
    hovermode: "closest",
    showlegend: false,
  };
}

const UNITS = [[2 * 86400, 86400, "days"], [2 * 3600, 3600, "hours"], [180, 60, "minutes"], [0, 1, "seconds"]];

/** {size, name} of the best unit for a number of seconds. */
export function unitOf(seconds) {
  const [, size, name] = UNITS.find(([least]) => seconds >= least);
  return { size, name };
}
