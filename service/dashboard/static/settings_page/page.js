// The page of the settings: its buttons ask the API, and the page then shows what there is.

import { copyOnClick } from "../shared/copying.js";
import { openDialog } from "../shared/dialogs.js";
import { fetchPage } from "../shared/live.js";
import { patchLive } from "../shared/patch.js";
import { keepTimes } from "../shared/times.js";
import { projects } from "./projects.js";
import { tokens } from "./tokens.js";
import { webhooks } from "./webhooks.js";

/** Shows what there is now; where whoever looks has to log in first, that page. */
async function refresh() {
  patchLive(await fetchPage());
}

document.addEventListener("click", (event) => {
  const id = event.target.closest("button[data-open]")?.dataset.open;
  if (!id) return;
  const opened = document.getElementById(id);
  const problem = opened.querySelector(".problem");
  if (problem) problem.hidden = true;
  openDialog(opened);
});

tokens(refresh);
webhooks(refresh);
projects(refresh);
copyOnClick();
keepTimes();
document.addEventListener("visibilitychange", () => document.hidden || refresh().catch(() => {}));
