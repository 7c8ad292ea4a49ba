// Keeps the reason for which a job waits true: it may change without an event of the job, as no event tells of workers.

import { fetchPage } from "../shared/live.js";
import { hasEnded } from "../shared/session.js";

const LOOK_MS = 10_000;

/** Shows what the page at an address says of it now, while the open one says that the job waits. */
export function keepWaiting(address) {
  setInterval(async () => {
    const shown = () => document.querySelector("#waiting > p > span");
    if (document.hidden || hasEnded() || !shown()) return;
    const page = await fetchPage(address).catch(() => null); // it is asked again
    const next = page?.querySelector("#waiting > p > span");
    // Where it does not wait any more, an event has told, and all of the page is brought up to date for that.
    if (next && shown() && next.textContent !== shown().textContent) shown().replaceWith(document.importNode(next, true));
  }, LOOK_MS);
}
