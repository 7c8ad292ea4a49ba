// Bars in a chart, drawn without Plotly, which takes tenths of a second for ten thousand of them.

const SVG = "http://www.w3.org/2000/svg";

const made = (name, attributes) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
};

/**
 * Returns `show(bars)`, which draws {path, colour, opacity} in the chart of `element`, once Plotly has drawn it. Paths
 * are in the units of its axes, the vertical one of which goes downwards; the bars follow when the reader zooms.
 */
export function barsOf(element) {
  const frame = made("svg", { class: "bars", preserveAspectRatio: "none" });
  let isBound = false;

  function place() {
    if (!frame.childElementCount) return frame.remove(); // axes without anything may go upwards
    const { xaxis, yaxis, _size: size } = element._fullLayout;
    const [[left, right], [bottom, top]] = [xaxis.range, yaxis.range];
    const places = { x: size.l, y: size.t, width: size.w, height: size.h };
    const viewBox = [left, top, right - left, bottom - top].join(" ");
    for (const [name, value] of Object.entries({ ...places, viewBox })) frame.setAttribute(name, value);
    // Between the grid and the points, like Plotly's own shapes.
    element.querySelector(".layer-between")?.append(frame);
  }

  return (bars) => {
    frame.replaceChildren(...bars.map(({ path, colour, opacity }) => made("path", { d: path, fill: colour, opacity })));
    place();
    if (isBound) return;
    isBound = true;
    for (const event of ["plotly_afterplot", "plotly_relayouting"]) element.on(event, place);
  };
}
