// Plotly, loaded when the page has been shown once: parsing it takes longer than anything else.

let last = Promise.resolve();

/** Draws after earlier requests, and lets the reader click in between, because each chart takes long. */
export function inTurn(draw) {
  const mine = last.then(() => new Promise((resolve) => setTimeout(resolve))).then(draw);
  last = mine.catch(() => {});
  return mine;
}

function painted() {
  // A page in the background is not painted, so drawing blocks nobody.
  if (document.hidden) return Promise.resolve();
  return new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
}

function loaded() {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = document.querySelector('meta[name="plotly"]').content;
    script.addEventListener("load", resolve);
    script.addEventListener("error", () => {
      script.remove();
      reject(new Error("The charts could not be drawn: Plotly did not come."));
    });
    document.head.append(script);
  });
}

/**
 * Draws an invisible chart, first its axes and then a curve: otherwise compiling the code would double the time of the
 * first visible chart.
 */
async function warmUp() {
  const chart = document.createElement("div");
  const size = { width: 300, height: 300 };
  await inTurn(() => Plotly.newPlot(chart, [], size));
  await inTurn(() => Plotly.react(chart, [{ x: [0, 1], y: [0, 1], mode: "lines+markers" }], size));
  Plotly.purge(chart);
}

let loading = null;

/** Plotly, from the address in the page's <meta name="plotly">. Throws if it cannot be loaded. */
export function plotly() {
  loading ??= painted()
    .then(loaded)
    .then(warmUp)
    .then(() => Plotly)
    .catch((error) => {
      loading = null; // whoever draws next asks again: the service may be back by then
      throw error;
    });
  return loading;
}
