// Values so far on the bad side of all others that these would be drawn in a narrow strip: a chart leaves them out.

const REACH = 1.5; // Tukey's fences: so many interquartile ranges beyond a quartile
const LEAST = 4; // values, for quartiles that say something
const SQUEEZED = 2.5; // times as long an axis, from which on the outliers are left out

/** The value below which a part of the sorted values lies. */
function quantile(sorted, part) {
  const place = part * (sorted.length - 1);
  const below = Math.floor(place);
  return sorted[below] + (place - below) * ((sorted[below + 1] ?? sorted[below]) - sorted[below]);
}

/**
 * {number, isAbove, end}: how many of `worst`, of each curve its worst value, are outliers, on which side, and the worst of
 * the others; null: there are none, or they take no room from the others.
 *
 * `best`: the best value that is drawn; `direction`: "minimize" or "maximize"; `scale`: the one that the reader wants.
 */
export function outliersOf(worst, best, { direction, scale }) {
  const isAbove = direction !== "maximize";
  const isLog = scale !== "linear" && Math.min(best, ...worst) > 0;
  const sign = isAbove ? 1 : -1;
  const placed = (value) => sign * (isLog ? Math.log(value) : value);
  if (worst.length < LEAST) return null;
  const sorted = [...worst].sort((one, other) => placed(one) - placed(other));
  const places = sorted.map(placed);
  const [first, third] = [quantile(places, 0.25), quantile(places, 0.75)];
  const inside = places.filter((place) => place <= third + REACH * (third - first)).length;
  const end = sorted[inside - 1];
  const length = placed(end) - placed(best);
  if (length <= 0 || placed(sorted.at(-1)) - placed(best) < SQUEEZED * length) return null;
  return { number: sorted.length - inside, isAbove, end };
}

/** What is said below a chart of the outliers that it leaves out. */
export function outliersInWords({ number, isAbove, end }, [one, many]) {
  return `Left out as outliers: ${number} ${number === 1 ? one : many} ${isAbove ? "above" : "below"} ${Number(end.toPrecision(3))}.`;
}
