// The list of jobs, kept live: rows change in place, and new jobs are shown when the reader asks for them.

import { keepFocus } from "../shared/focus.js";
import { fetchPage, follow } from "../shared/live.js";
import { patchLive } from "../shared/patch.js";
import { keepTimes } from "../shared/times.js";
import { followActions } from "./acting.js";
import { followChoices, keepChosen, showChosen } from "./choosing.js";

const arrived = document.getElementById("arrived");
const body = (page) => page.querySelector("#jobs tbody");

/** Removes the rows from `next` that are not shown yet, and keeps those that they have pushed off the page. */
function heldBack(next) {
  const [shown, wanted] = [body(document), body(next)];
  if (!shown || !wanted) return 0;
  const present = new Set([...shown.rows].map((row) => row.id));
  const fresh = [...wanted.rows].filter((row) => !present.has(row.id));
  const coming = new Set([...wanted.rows].map((row) => row.id));
  // As many rows as there are new ones have fallen off the end; they still belong to this list.
  const fallen = [...shown.rows].slice(-fresh.length || shown.rows.length).filter((row) => !coming.has(row.id));
  for (const row of fresh) row.remove();
  if (fresh.length) wanted.append(...fallen.map((row) => next.importNode(row, true)));
  return fresh.length;
}

function tell(number) {
  arrived.hidden = number === 0;
  const text = `${number} more ${number === 1 ? "job" : "jobs"}: show`;
  if (number && arrived.firstElementChild.textContent !== text) arrived.firstElementChild.textContent = text;
}

async function refresh() {
  const next = await fetchPage();
  tell(heldBack(next));
  patchLive(next);
  showChosen();
}

/** Shows the current list, in its order. */
async function renew() {
  const next = await fetchPage();
  const jobs = document.importNode(next.getElementById("jobs"), true);
  keepChosen(() => keepFocus(() => document.getElementById("jobs").replaceChildren(...jobs.childNodes)));
  tell(0);
}

arrived.firstElementChild.addEventListener("click", async () => {
  await renew().catch(() => {}); // why it did not come, the stream tells
  document.querySelector("#jobs .name")?.focus();
});

keepTimes();
followChoices();
followActions(renew);
follow("/v1/events", refresh);
