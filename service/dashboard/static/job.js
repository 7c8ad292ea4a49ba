// One job's page: charts, trials table, live updates, and the buttons.

import { chart } from "./charts.js";
import { fetchPage, follow } from "./live.js";
import { patchLive } from "./patch.js";
import { records } from "./records.js";
import { sortable } from "./table.js";
import { keepTimes } from "./times.js";

const api = `/v1/jobs/${encodeURIComponent(document.getElementById("job").dataset.jobId)}`;
const table = document.getElementById("trials");
const isFinal = () => document.getElementById("actions").dataset.final === "true";

let axis = "trials";
let against = null; // what the trade-off is drawn over; null: the job's second objective
let picked = null;
const best = chart("best-so-far", () => `${api}/plots/best-so-far?x=${axis}`);
const curves = chart("learning-curves", () => `${api}/plots/learning-curves`, (number) => pick(number, true));
const tradeOff =
  document.getElementById("trade-off") &&
  chart("trade-off", () => `${api}/plots/trade-off${against ? `?against=${encodeURIComponent(against)}` : ""}`, (number) =>
    pick(number, true),
  );
const charts = [best, curves, ...(tradeOff ? [tradeOff] : [])];
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
  if (row && !event.target.closest("button.act")) pick(Number(row.dataset.number));
});

/** Has the buttons with an attribute `data-<name>` choose one of its values, and a chart drawn by it. */
function switched(name, drawn, choose) {
  const buttons = [...document.querySelectorAll(`button[data-${name}]`)];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      choose(button.dataset[name]);
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      drawn.load().catch(complain);
    });
  }
}

switched("axis", best, (value) => (axis = value));
switched("against", tradeOff, (value) => (against = value));

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

/** Sends a request to the API, and gives its response; what it refuses is shown, prefixed by `failure`. */
async function send(method, path, failure, body) {
  const headers = body ? { "Content-Type": "application/json" } : {};
  const response = await fetch(api + path, { method, headers, body: body && JSON.stringify(body) });
  if (!response.ok) {
    const answer = await response.json().catch(() => ({}));
    throw new Error(`${failure}: ${answer.detail ?? answer.title ?? response.status}`);
  }
  return response;
}

/** Does something to the job or a trial, and shows what came of it; nothing, if the action leaves the page: false. */
async function act(action) {
  document.getElementById("problem").hidden = true;
  try {
    if ((await action()) === false) return;
    await refresh();
    keepLive();
  } catch (error) {
    complain(error);
  }
}

records(send, act);

const confirmation = document.getElementById("confirm-cancel");
confirmation.addEventListener("close", () => {
  if (confirmation.returnValue === "cancel") act(() => send("POST", "/cancel", "The job was not cancelled"));
});

const again = document.getElementById("confirm-retry");

function askToRetry(number) {
  again.dataset.number = number;
  again.querySelector("[data-trial]").textContent = number;
  again.returnValue = "";
  again.showModal();
}

again.addEventListener("close", () => {
  if (again.returnValue === "retry") act(() => send("POST", `/trials/${again.dataset.number}/retry`, "Retry failed"));
});

const budget = document.getElementById("budget-dialog");
const fields = [...budget.querySelectorAll("input")];

function askForBudget(button) {
  for (const field of fields) field.value = button.getAttribute(`data-${field.name.replaceAll("_", "-")}`);
  budget.returnValue = "";
  budget.showModal();
}

async function changeBudget() {
  const values = fields.map((field) => [field.name, field.value === "" ? null : Number(field.value)]);
  const failure = "The budget was not changed";
  await send("PATCH", "", failure, { budget: Object.fromEntries(values) });
  if (isFinal()) await send("POST", "/resume", "The job does not go on");
}

budget.addEventListener("close", () => {
  if (budget.returnValue === "change") act(changeBudget);
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.id === "cancel") {
    confirmation.returnValue = "";
    confirmation.showModal();
  } else if (button?.id === "change-budget") askForBudget(button);
  else if (button?.dataset.copy) copy(button);
  else if (button?.dataset.act === "retry") askToRetry(button.closest("tr").dataset.number);
  else if (button?.dataset.act === "close") button.closest("dialog").close("");
  else if (button?.dataset.act) {
    const row = button.closest("tr");
    const path = row ? `/trials/${row.dataset.number}` : "";
    act(() => send("POST", `${path}/${button.dataset.act}`, `${button.textContent} failed`));
  }
});

/** Brings the page up to date; false when the job has ended, so that nothing more will come by itself. */
async function refresh() {
  const page = await fetchPage();
  // After the page: charts older than a page that says "ended" would stay old.
  await Promise.all(charts.map((one) => one.load()));
  patchLive(page);
  markPicked();
  sort();
  if (isFinal()) following = false;
  return following;
}

let following = false;

/** Follows the job's events, unless that is done already or there are none to come. */
function keepLive() {
  if (following || isFinal()) return;
  following = true;
  follow(`${api}/events`, refresh);
}

// A job that has ended may have been taken up again elsewhere: look anew when the page is looked at.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !following) refresh().then(keepLive, () => {});
});

keepTimes();
Promise.all(charts.map((one) => one.load())).catch(complain);
keepLive();
