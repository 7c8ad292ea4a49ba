// The settings page: its buttons call the API, and the page then shows the current state.

import { copyOnClick } from "../shared/copying.js";
import { openDialog } from "../shared/dialogs.js";
import { fetchPage } from "../shared/live.js";
import { patchLive } from "../shared/patch.js";
import { SessionEnded } from "../shared/session.js";
import { keepTimes } from "../shared/times.js";
import { projects } from "./projects.js";
import { tokens } from "./tokens.js";
import { webhooks } from "./webhooks.js";

/** Shows the current state. */
async function refresh() {
  patchLive(await fetchPage());
}

/** The same after tokens have changed; if the reader has to log in first, as after the first token, shows the log-in
 * page. */
async function renew() {
  try {
    await refresh();
  } catch (error) {
    if (!(error instanceof SessionEnded)) throw error;
    location.reload();
  }
}

document.addEventListener("click", (event) => {
  const id = event.target.closest("button[data-open]")?.dataset.open;
  if (!id) return;
  const opened = document.getElementById(id);
  const problem = opened.querySelector(".problem");
  if (problem) problem.hidden = true;
  openDialog(opened);
});

tokens(renew);
webhooks(refresh);
projects(refresh);
copyOnClick();
keepTimes();
document.addEventListener("visibilitychange", () => document.hidden || refresh().catch(() => {}));
