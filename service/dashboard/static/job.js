// One job's page: charts, trials table, live updates, and the buttons.

import { chart } from "./charts.js";
import { fetchPage, follow } from "./live.js";
import { patchLive } from "./patch.js";
import { sortable } from "./table.js";
import { keepTimes } from "./times.js";

const api = `/v1/jobs/${encodeURIComponent(document.getElementById("job").dataset.jobId)}`;
const table = document.getElementById("trials");
const isFinal = () => document.getElementById("actions").dataset.final === "true";

let axis = "trials";
let picked = null;
const best = chart("best-so-far", () => `${api}/plots/best-so-far?x=${axis}`);
const curves = chart("learning-curves", () => `${api}/plots/learning-curves`, (number) => pick(number, true));
const sort = sortable(table);

function markPicked() {
  for (const button of table.querySelectorAll("button.pick")) {
    button.setAttribute("aria-pressed", String(Number(button.closest("tr").dataset.number) === picked));
  }
}

/** Highlights a trial in table and chart; picking it again lets go. */
function pick(number, reveal = false) {
  picked = picked === number ? null : number;
  markPicked();
  curves.pick(picked);
  if (!reveal || picked === null) return;
  document.getElementById(`trial-${picked}`)?.scrollIntoView({ block: "nearest" });
}

table.addEventListener("click", (event) => {
  const row = event.target.closest("tbody tr[data-number]");
  if (row) pick(Number(row.dataset.number));
});

for (const button of document.querySelectorAll("button[data-axis]")) {
  button.addEventListener("click", () => {
    axis = button.dataset.axis;
    for (const other of document.querySelectorAll("button[data-axis]")) {
      other.setAttribute("aria-pressed", String(other === button));
    }
    best.load().catch(complain);
  });
}

async function copy(button) {
  const text = document.getElementById(button.dataset.copy).textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Only pages on https or localhost may use the clipboard directly.
    const area = Object.assign(document.createElement("textarea"), { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const label = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = label), 1500);
}

function complain(error) {
  const problem = document.getElementById("problem");
  problem.textContent = error.message;
  problem.hidden = false;
}

async function cancel() {
  const response = await fetch(`${api}/cancel`, { method: "POST" });
  if (!response.ok) {
    const answer = await response.json().catch(() => ({}));
    throw new Error(`The job was not cancelled: ${answer.detail ?? answer.title ?? response.status}`);
  }
  await refresh();
}

const dialog = document.getElementById("confirm-cancel");
dialog.addEventListener("close", () => {
  if (dialog.returnValue === "cancel") cancel().catch(complain);
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.id === "cancel") {
    dialog.returnValue = "";
    dialog.showModal();
  } else if (button?.dataset.copy) copy(button);
});

/** Brings the page up to date; false when the job has ended, so that nothing more will come. */
async function refresh() {
  const page = await fetchPage();
  // After the page: charts older than a page that says "ended" would stay old.
  await Promise.all([best.load(), curves.load()]);
  patchLive(page);
  markPicked();
  sort();
  return !isFinal();
}

keepTimes();
Promise.all([best.load(), curves.load()]).catch(complain);
if (!isFinal()) follow(`${api}/events`, refresh);
