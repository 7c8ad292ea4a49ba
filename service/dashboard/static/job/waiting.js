// Keeps the reason for a job's waiting up to date: it may change without an event of the job, because workers have no
// events.

import { fetchPage } from "../shared/live.js";
import { hasEnded } from "../shared/session.js";

const LOOK_MS = 10_000;

/** Shows the current reason from the page at an address, while the job has not ended and `isQuiet` says that no events
 * come. */
export function keepWaiting(address, isQuiet) {
  setInterval(async () => {
    const shown = () => document.querySelector("#waiting.coming");
    if (document.hidden || hasEnded() || !shown() || !isQuiet(LOOK_MS / 2)) return;
    const page = await fetchPage(address).catch(() => null); // it is asked again
    const next = page?.querySelector("#waiting");
    if (!next || !shown()) return;
    const [was, is] = [shown(), next].map((part) => part.querySelector("p > span"));
    // Only the reason, if there was one: the times next to it update themselves.
    if (was && is && was.textContent !== is.textContent) was.replaceWith(document.importNode(is, true));
    if (!was !== !is) shown().replaceChildren(...document.importNode(next, true).childNodes);
  }, LOOK_MS);
}
