// Scales of the axes of parallel coordinates: the position of a value between the foot of an axis, 0, and its head, 1.

const TRANSFORMS = {
  linear: [(x) => x, (y) => y],
  log: [Math.log10, (y) => 10 ** y],
  reverse_log: [(x) => -Math.log1p(-x), (y) => 1 - Math.exp(-y)],
};
const MAX_TICKS = 7;
const DIGITS = 4;

/** A number in few digits: 0.00143, 3e-8. */
export function short(value, digits = 3) {
  if (value === 0) return "0";
  const rounded = Number(value.toPrecision(digits));
  const size = Math.abs(rounded);
  return size < 1e-4 || size >= 1e6 ? rounded.toExponential().replace("e+", "e") : String(rounded);
}

/** Round numbers from `low` to `high`, on the scale. */
function roundTicks(scale, low, high) {
  const found = [];
  if (scale === "log") {
    const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
    const stride = Math.ceil((last - first + 1) / MAX_TICKS);
    for (let power = first; power <= last; power += stride) found.push(10 ** power);
  } else if (scale === "reverse_log") {
    for (const value of [0, 0.5, 0.9, 0.99, 0.999, 0.9999]) if (value >= low && value <= high) found.push(value);
  } else {
    const rough = (high - low) / 4;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
    for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n += 1) found.push(Number((n * step).toPrecision(12)));
  }
  return found;
}

/** The scale of numbers from `low` to `high`; values outside are at the end. */
export function numberScale(kind, low, high) {
  const [forth, back] = TRANSFORMS[kind];
  const [from, to] = [forth(low), forth(high)];
  const span = to - from || 1;
  const place = (value) => Math.min(1, Math.max(0, to === from ? 0.5 : (forth(value) - from) / span));
  const round = low === high ? [low] : roundTicks(kind, low, high);
  const ticks = (round.length > 1 ? round : [low, high]).map((value) => ({ at: place(value), text: short(value) }));
  return {
    choices: null,
    ticks,
    place: (value) => (typeof value === "number" ? place(value) : null),
    /** The number at a position, in few digits; null at either end: the range is open there. */
    valueAt: (at) => (at < 0.005 || at > 0.995 ? null : Number(back(from + at * span).toPrecision(DIGITS))),
    /** The end of a range, which is open if `value` is null. */
    endAt: (value, isHigh) => (value === null ? Number(isHigh) : place(value)),
  };
}

/** A choice in the form of the API's filters. */
export const choiceText = (choice) => (typeof choice === "string" ? choice : JSON.stringify(choice));

/** The scale of a parameter with choices: each has an equal part of the axis. */
export function choiceScale(choices) {
  const texts = choices.map(choiceText);
  const at = new Map(texts.map((text, index) => [text, (index + 0.5) / texts.length]));
  return {
    choices: texts,
    ticks: texts.map((text) => ({ at: at.get(text), text: text.length > 12 ? `${text.slice(0, 11)}…` : text })),
    place: (value) => at.get(choiceText(value)) ?? null,
    /** The choice at a position. */
    choiceAt: (place) => texts[Math.min(texts.length - 1, Math.max(0, Math.floor(place * texts.length)))],
    at: (text) => at.get(text),
  };
}
