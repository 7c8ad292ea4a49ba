// Keeps what a job waits for true: it may change without an event of the job, as no event tells of workers.

import { fetchPage } from "../shared/live.js";
import { hasEnded } from "../shared/session.js";

const LOOK_MS = 10_000;

/** Shows what the page at an address says of it now, while the job has not ended and `isQuiet` says that no event tells. */
export function keepWaiting(address, isQuiet) {
  setInterval(async () => {
    const shown = () => document.querySelector("#waiting.coming");
    if (document.hidden || hasEnded() || !shown() || !isQuiet(LOOK_MS / 2)) return;
    const page = await fetchPage(address).catch(() => null); // it is asked again
    const next = page?.querySelector("#waiting");
    if (!next || !shown()) return;
    const [was, is] = [shown(), next].map((part) => part.querySelector("p > span"));
    // The reason alone where there was one: times beside it are kept by themselves.
    if (was && is && was.textContent !== is.textContent) was.replaceWith(document.importNode(is, true));
    if (!was !== !is) shown().replaceChildren(...document.importNode(next, true).childNodes);
  }, LOOK_MS);
}
