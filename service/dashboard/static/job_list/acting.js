// Actions on many jobs at once: confirmed by a question, reported with the refused ones, and undone if possible.

import { openDialog } from "../shared/dialogs.js";
import { refusal, request } from "../shared/session.js";
import { chooseNone, chosenJobs, focusList } from "./choosing.js";

/** `undo`: the reverse action; `isIdle(job)`: the action changed nothing about the job as it was when selected, so
 * there is nothing to undo. */
const ACTIONS = {
  pause: { verb: "Pause", done: "Paused", undo: "resume", isIdle: ({ state }) => state === "paused", told: "Trials keep their checkpoints, and go on from them." },
  resume: { verb: "Resume", done: "Resumed", undo: "pause", isIdle: ({ state }) => ["queued", "running"].includes(state), told: "Paused jobs go on; finished ones, where budget is left." },
  cancel: { verb: "Cancel", button: "Cancel jobs", done: "Cancelled", undo: null, told: "Running trials stop and end as cancelled. Finished trials stay.", isDanger: true },
  archive: { verb: "Archive", done: "Archived", undo: "unarchive", isIdle: ({ isArchived }) => isArchived === true, told: "Lists leave them out; nothing else changes." },
  unarchive: { verb: "Bring back", done: "Brought back", undo: "archive", isIdle: ({ isArchived }) => isArchived === false, told: "Lists show them again." },
};
const AT_ONCE = ["pause", "resume", "cancel"];
/** The API does these actions to many jobs in one request. */

const bar = document.getElementById("chosen");
const dialog = document.getElementById("sure");
const note = document.getElementById("done");
let asked = null; // what the dialog names, whatever has become of the choices since

async function send(address, body) {
  const headers = body ? { "Content-Type": "application/json" } : {};
  const response = await request(address, { method: "POST", headers, body: body && JSON.stringify(body) });
  if (!response.ok) throw new Error(await refusal(response));
  return response.json();
}

/** The result for each job: why it was refused, or null. */
async function outcomes(action, jobs) {
  if (!AT_ONCE.includes(action)) {
    const refused = [];
    for (const { id } of jobs) {
      const address = `/v1/jobs/${encodeURIComponent(id)}/${action}`;
      refused.push(await send(address).then(() => null, (error) => error.message)); // others may have been done
    }
    return refused;
  }
  const { items } = await send(`/v1/jobs:${action}`, { job_ids: jobs.map(({ id }) => id) });
  return items.map((item) => item.problem?.detail ?? null);
}

function items(texts) {
  return texts.map((text) => Object.assign(document.createElement("li"), { textContent: text }));
}

/** The names of jobs; if several have the same name, with the end of the id, as in the list. */
function namesOf(jobs) {
  const isTwice = ({ id, name }) => jobs.some((other) => other.id !== id && other.name === name);
  return jobs.map((job) => (isTwice(job) ? `${job.name} …${job.id.slice(-6)}` : job.name));
}

function tell(action, jobs, refused, shown) {
  const done = jobs.filter((_, index) => refused[index] === null);
  const told = namesOf(jobs).map((name, index) => [name, refused[index]]).filter(([, why]) => why !== null);
  const words = `${done.length} ${done.length === 1 ? "job" : "jobs"}`;
  note.querySelector("p").textContent = `${ACTIONS[action].done}: ${words}${told.length ? `; refused: ${told.length}` : ""}.`;
  note.querySelector("ul").replaceChildren(...items(told.map(([name, why]) => `${name}: ${why}`)));
  const undo = document.getElementById("undo");
  const changed = ACTIONS[action].undo === null ? [] : done.filter((job) => !ACTIONS[action].isIdle(job));
  undo.hidden = changed.length === 0;
  undo.onclick = () => act(ACTIONS[action].undo, changed.map(({ id, name }) => ({ id, name })), shown);
  note.hidden = false;
}

async function act(action, jobs, shown) {
  try {
    tell(action, jobs, await outcomes(action, jobs), shown);
  } catch (error) {
    tell(action, jobs, jobs.map(() => error.message), shown);
  }
  // The result is announced where the keyboard focus was: the bar disappears, and "Undo" may, too.
  const isHere = bar.contains(document.activeElement) || note.contains(document.activeElement);
  chooseNone();
  if (isHere) note.focus({ preventScroll: true });
  await shown().catch(() => {}); // what does not come, the stream brings
}

function ask(action) {
  const jobs = chosenJobs();
  const { verb, button, told, isDanger } = ACTIONS[action];
  document.getElementById("sure-title").textContent = `${verb} ${jobs.length === 1 ? "this job" : `these ${jobs.length} jobs`}?`;
  document.getElementById("sure-told").textContent = told;
  dialog.querySelector(".names").replaceChildren(...items(namesOf(jobs)));
  const go = document.getElementById("go");
  go.textContent = button ?? verb;
  go.classList.toggle("danger", isDanger === true);
  asked = { action, jobs };
  openDialog(dialog);
}

/** `shown()` updates the list. */
export function followActions(shown) {
  for (const button of document.querySelectorAll("#chosen [data-do]")) {
    button.addEventListener("click", () => ask(button.dataset.do));
  }
  dialog.addEventListener("close", () => {
    if (dialog.returnValue === "go") act(asked.action, asked.jobs, shown);
  });
  document.getElementById("seen").addEventListener("click", () => {
    note.hidden = true;
    focusList();
  });
}
