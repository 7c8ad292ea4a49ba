// The axes of parallel coordinates as SVG: their ticks, and the ranges that are chosen with the pointer.

const SVG = "http://www.w3.org/2000/svg";
const GRASP = 14; // pixels on either side of an axis
const CLICK = 4;

function made(name, attributes, text = "") {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}

/**
 * Draws `axes` ({name, title, scale}) at `xs`, from `foot` up to `head`, with the ranges that `filters` holds.
 * `none`: where the lines of trials without a parameter pass its axis; null: all trials have all parameters.
 */
export function drawAxes(svg, names, axes, { xs, head, foot, none, width, height }, filters) {
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren();
  const yOf = (at) => foot - at * (foot - head);
  if (none !== null) {
    svg.append(made("line", { class: "none", x1: xs[0], x2: xs.at(-1), y1: none, y2: none }));
    svg.append(made("text", { x: xs[0] - 6, y: none + 4, "text-anchor": "end" }, "none"));
  }
  axes.forEach(({ name, scale }, index) => {
    const x = xs[index];
    const group = made("g", { "data-axis": index });
    group.append(made("line", { x1: x, x2: x, y1: foot, y2: head }));
    for (const { at, text } of scale.ticks) {
      group.append(made("line", { x1: x - 3, x2: x + 3, y1: yOf(at), y2: yOf(at) }));
      group.append(made("text", { class: "halo", x: x - 6, y: yOf(at) + 4, "text-anchor": "end" }, text));
    }
    const part = chosenPart(name, scale, filters);
    if (part) group.append(made("rect", { class: "chosen", x: x - 7, width: 14, y: yOf(part[1]), height: yOf(part[0]) - yOf(part[1]) }));
    group.append(made("rect", { class: "grasp", x: x - GRASP, width: 2 * GRASP, y: head - 6, height: foot - head + 12 }));
    svg.append(group);
  });
  const gap = xs.length > 1 ? xs[1] - xs[0] : width;
  names.replaceChildren(
    ...axes.map(({ title }, index) => {
      const element = document.createElement("span");
      const room = Math.min(gap, 2 * xs[index], 2 * (width - xs[index])) - 6;
      title.split(/(?<=[._])/).forEach((word) => element.append(word, document.createElement("wbr")));
      element.title = title;
      element.style.left = `${xs[index] - room / 2}px`;
      element.style.width = `${room}px`;
      return element;
    }),
  );
}

/** [lower, upper] end of the chosen range of an axis; null: the whole axis. */
function chosenPart(name, scale, filters) {
  if (scale.choices) {
    const at = scale.at(filters.choice(name));
    return at === undefined ? null : [at - 0.5 / scale.choices.length, at + 0.5 / scale.choices.length];
  }
  const [low, high] = filters.range(name);
  return low === null && high === null ? null : [scale.endAt(low, false), scale.endAt(high, true)];
}

/**
 * Makes axes brushable: a drag along one chooses a range, a click on one with choices a choice, and a click on a chosen
 * range removes it. `shown()` returns {axes, layout} as they are drawn now.
 */
export function brushes(svg, shown, filters) {
  let drag = null;

  const placeOf = (event) => {
    const { head, foot } = shown().layout;
    const y = event.clientY - svg.getBoundingClientRect().top;
    return Math.min(1, Math.max(0, (foot - y) / (foot - head)));
  };

  svg.addEventListener("pointerdown", (event) => {
    const group = event.target.closest(".grasp")?.parentNode;
    if (!group || event.button) return;
    event.preventDefault();
    svg.setPointerCapture(event.pointerId);
    drag = { axis: Number(group.dataset.axis), from: placeOf(event), y: event.clientY, moved: false, band: null };
  });

  svg.addEventListener("pointermove", (event) => {
    if (!drag) return;
    drag.moved ||= Math.abs(event.clientY - drag.y) > CLICK;
    const { axes, layout } = shown();
    if (!drag.moved || axes[drag.axis].scale.choices) return;
    drag.band ??= svg.appendChild(made("rect", { class: "chosen", x: layout.xs[drag.axis] - 7, width: 14 }));
    const [low, high] = [drag.from, placeOf(event)].sort((a, b) => a - b);
    drag.band.setAttribute("y", layout.foot - high * (layout.foot - layout.head));
    drag.band.setAttribute("height", (high - low) * (layout.foot - layout.head));
  });

  svg.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const { axis, from, moved } = drag;
    const { name, scale } = shown().axes[axis];
    const to = placeOf(event);
    drag.band?.remove();
    drag = null;
    if (scale.choices) {
      const choice = scale.choiceAt(to);
      filters.setChoice(name, filters.choice(name) === choice ? "" : choice);
    } else if (!moved) filters.setRange(name, null, null);
    else filters.setRange(name, ...[from, to].sort((a, b) => a - b).map(scale.valueAt));
  });

  svg.addEventListener("pointercancel", () => {
    drag?.band?.remove();
    drag = null;
  });

  return { isDragging: () => drag !== null };
}
