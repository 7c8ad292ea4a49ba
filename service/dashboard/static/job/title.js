// The title of a job's page, which shows the job's progress in the list of tabs, also while the page is hidden.

import { fetchPage } from "../shared/live.js";
import { hasEnded } from "../shared/session.js";

const LOOK_MS = 30_000;

/** The server's title for this job, in a page or in parts of one. */
const momentOf = (page) => page.getElementById("moment").dataset;

/** Sets the title of the open page to the one in its current parts. */
export function showTitle() {
  document.title = momentOf(document).title;
}

/** Keeps the title up to date while the page is hidden and has no stream; `address`: the address of its parts. */
export function keepTitle(address) {
  let isOver = momentOf(document).final === "true";
  setInterval(async () => {
    if (!document.hidden || hasEnded() || isOver) return;
    const page = await fetchPage(address).catch(() => null); // it is asked again
    if (!page || !document.hidden) return;
    document.title = momentOf(page).title;
    isOver = momentOf(page).final === "true";
  }, LOOK_MS);
}
