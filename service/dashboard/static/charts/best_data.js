// The best value of each side, from complete answers and the trials that have ended since. No drawing here.

/** The data of a page after another answer of the service; `isBetter(one, other)`. */
export function mergedBest(known, answer) {
  if (answer.whole) return answer;
  const sides = structuredClone(known.sides);
  const isBetter = known.direction === "minimize" ? (one, other) => one < other : (one, other) => one > other;
  const empty = () => ({ n: [], seconds: [], y: [], number: [] });
  for (const [number, key, seconds, y] of answer.finished) {
    const side = (sides[key] ??= { count: 0, end: 0, line: empty(), dots: empty() });
    side.count += 1;
    side.end = Math.max(side.end, seconds);
    if (y === null) continue;
    const point = { n: side.count, seconds, y, number };
    const append = (columns) => Object.keys(columns).forEach((name) => columns[name].push(point[name]));
    append(side.dots);
    if (!side.line.y.length || isBetter(y, side.line.y.at(-1))) append(side.line);
  }
  return { ...known, event: answer.event, finished: known.finished + answer.finished.length, sides };
}

/** The best value of a side after a number of its trials; null: none had completed. */
function bestAfter(side, count) {
  let found = null;
  side.line.n.forEach((place, index) => {
    if (place <= count) found = side.line.y[index];
  });
  return found;
}

/** {count, found: [[group, value], ...]}: the best of each side after equal numbers of trials; null: nothing to
 * compare. */
export function atEqualTrials({ groups, sides }) {
  const there = groups.filter((group) => sides[group.key]?.line.y.length);
  if (there.length < 2) return null;
  const count = Math.min(...there.map((group) => sides[group.key].count));
  return { count, found: there.map((group) => [group, bestAfter(sides[group.key], count)]) };
}
