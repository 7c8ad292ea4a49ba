// The title of a job's page, which says how far it is to whoever has it among other tabs, also while nobody looks at it.

import { fetchPage } from "../shared/live.js";
import { hasEnded } from "../shared/session.js";

const LOOK_MS = 30_000;

/** What the server says of this job in a page, or in parts of one. */
const momentOf = (page) => page.getElementById("moment").dataset;

/** Gives the open page the title that its parts have now. */
export function showTitle() {
  document.title = momentOf(document).title;
}

/** Keeps the title true while the page is hidden, when no stream tells; `address`: where its parts are. */
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
