// The curves of a page, from the service's complete answers and the later ones with new points. No drawing here.

/** An answer's columns as one object for each curve. */
function curvesOf(columns, groups) {
  return columns.number.map((number, index) => {
    const y = columns.y[index];
    const steps = columns.steps[index] ?? columns.grid.slice(0, y.length);
    const parameters = columns.parameters.flatMap((name, place) => {
      const value = columns.values[index][place];
      return value === null ? [] : [[name, value]];
    });
    return {
      number,
      group: groups.get(columns.group[index]),
      state: columns.state[index],
      reason: columns.reason[index],
      confirms: columns.confirms[index],
      title: groups.get(columns.side[index]).label,
      parameters,
      steps,
      x: columns.x[index] ?? steps,
      y,
    };
  });
}

/** The points of a curve; from step `from` on, those of `further`. */
function continued(curve, further, from) {
  const kept = from ? curve.steps.findIndex((step) => step >= from) : 0;
  const before = (values) => (kept < 0 ? values : values.slice(0, kept));
  return {
    ...further,
    steps: [...before(curve.steps), ...further.steps],
    x: [...before(curve.x), ...further.x],
    y: [...before(curve.y), ...further.y],
  };
}

/** The data of a page after another answer: {event, metric, metrics, axes, over, groups, rungs, ...,
 * curves by number}. */
export function merged(known, answer) {
  if (answer.whole) {
    const groups = new Map(answer.groups.map((group) => [group.key, group]));
    const curves = new Map(curvesOf(answer.curves, groups).map((curve) => [curve.number, curve]));
    return { ...answer, groups, curves, num_further: 0 };
  }
  const curves = new Map(known.curves);
  curvesOf(answer.curves, known.groups).forEach((further, index) => {
    const old = curves.get(further.number);
    curves.set(further.number, old ? continued(old, further, answer.from[index]) : further);
  });
  const num_further = known.num_further + curves.size - known.curves.size;
  const sorted = [...curves].sort(([one], [other]) => one - other);
  return { ...known, event: answer.event, num_further, curves: new Map(sorted) };
}

/** Which curves are drawn, in words; empty: all. */
export function choiceInWords({ num_measured, num_best, num_training, num_further, curves }) {
  const all = num_measured + num_further;
  if (curves.size >= all) return "";
  const rest = [`the best ${num_best} and an even choice of the rest`];
  if (num_training + num_further) rest.push("those that train while you look");
  return `${curves.size} of ${all.toLocaleString("en")} curves: ${rest.join(", and ")}.`;
}
