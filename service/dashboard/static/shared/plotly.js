// Plotly, begun when the page has been shown once: to read it takes longer than anything else.

let loading = null;

function painted() {
  // A page in the background is not painted, and in nobody's way.
  if (document.hidden) return Promise.resolve();
  return new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
}

/** Plotly, from where the page's <meta name="plotly"> says. Throws if it cannot be had. */
export function plotly() {
  if (globalThis.Plotly) return Promise.resolve(globalThis.Plotly);
  loading ??= painted().then(
    () =>
      new Promise((resolve, reject) => {
        const script = document.createElement("script");
        script.src = document.querySelector('meta[name="plotly"]').content;
        script.addEventListener("load", () => resolve(globalThis.Plotly));
        script.addEventListener("error", () => {
          script.remove();
          loading = null; // whoever draws next asks again: the service may be back by then
          reject(new Error("The charts could not be drawn: Plotly did not come."));
        });
        document.head.append(script);
      }),
  );
  return loading;
}

let last = Promise.resolve();

/** Draws after what was asked for before, and lets the reader click in between: each chart takes long by itself. */
export function inTurn(draw) {
  const mine = last.then(() => new Promise((resolve) => setTimeout(resolve))).then(draw);
  last = mine.catch(() => {});
  return mine;
}
