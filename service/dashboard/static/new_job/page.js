// The form of a new job: its document is shown next to it, estimated by the API, kept over a reload, and submitted.

import { copyOnClick } from "../shared/copying.js";
import { catalogue } from "./catalogue.js";
import { addRow, fill, readDocument, removeRow, showInside } from "./document.js";
import { goTo, showFaults, tell } from "./faults.js";
import { TYPED, forget, keep, kept } from "./keeping.js";
import { showOwn } from "./kinds.js";
import { forgetOptions, optionsOf } from "./options.js";
import { preview } from "./preview.js";
import { chooseSpace, chooseUnused } from "./spaces.js";
import { submission } from "./submitting.js";
import { curl, yaml } from "./yaml.js";

const form = document.getElementById("job-form");
const button = document.getElementById("submit");
const reckoning = preview(showFaults);
const send = submission(catalogue);

/** The pending request for the options of the last chosen workload. */
let choosing = Promise.resolve();

/** Shows the options of a workload, unless another one is chosen before they arrive. */
async function bringOptions(name) {
  const place = document.getElementById("options");
  const own = {};
  place.choice = own;
  place.setAttribute("aria-busy", "true");
  place.style.minHeight = `${place.offsetHeight}px`; // what stands below moves once
  place.replaceChildren();
  delete place.dataset.missing;
  try {
    const options = await optionsOf(name ?? "");
    if (place.choice === own) place.replaceChildren(options);
  } catch (error) {
    if (place.choice !== own) return;
    place.dataset.missing = "";
    tell(`The options of ${name} could not be read: ${error.message} Choose the workload again.`);
  }
  if (place.choice !== own) return;
  place.style.minHeight = "";
  place.removeAttribute("aria-busy");
}

async function chooseWorkload(name) {
  const workload = catalogue.workloads[name];
  document.getElementById("workload-help").textContent = workload?.told ?? "";
  const options = (workload?.metrics ?? []).map((metric) => Object.assign(document.createElement("option"), { value: metric }));
  document.getElementById("metrics").replaceChildren(...options);
  choosing = bringOptions(name);
  await choosing;
}

async function begin() {
  forgetOptions();
  await fill(form, catalogue.clone?.submission ?? { workload: { name: catalogue.workload } }, chooseWorkload);
}

/** Shows the current document of the form, and requests its estimate. */
function update() {
  const { document: job, places, problems } = readDocument(form);
  const typed = problems.map(({ pointer }) => [pointer, places.get(pointer)?.value ?? ""]);
  // If the options are missing, what was typed there before is kept.
  if (document.getElementById("options").dataset.missing === undefined) keep(TYPED, { job, typed });
  document.getElementById("yaml").textContent = yaml(job);
  document.getElementById("curl").textContent = curl(job, catalogue);
  if (problems.length) {
    showFaults(problems, places);
    reckoning.refuse(problems.length);
  } else reckoning.ask(job, places);
}

function add(list) {
  const others = [...list.querySelectorAll(".space")];
  const row = addRow(list);
  const space = row.querySelector(".space");
  if (space) chooseUnused(space, others);
  row.querySelector("input, select, textarea").focus();
}

async function restore() {
  const state = kept(TYPED);
  if (state?.job === undefined) return false;
  await fill(form, state.job, chooseWorkload);
  const { places } = readDocument(form);
  for (const [pointer, text] of state.typed) if (places.get(pointer)) places.get(pointer).value = text;
  return true;
}

/** Shows what was typed; if nothing was, or it was submitted, shows the initial values of a job. */
async function show() {
  const fields = document.getElementById("fields");
  fields.disabled = true;
  if (!(await restore())) await begin();
  fields.disabled = false;
  update();
}

async function submit() {
  await choosing;
  const { document: job, places, problems } = readDocument(form);
  const first = showFaults(problems, places);
  if (problems.length) {
    reckoning.refuse(problems.length);
    if (first) goTo(first);
    return;
  }
  reckoning.stop();
  setSending(true);
  try {
    const { id, faults, isOfJob } = await send(job);
    if (id) {
      forget();
      location.assign(`/jobs/${encodeURIComponent(id)}`);
      return;
    }
    const wrong = showFaults(faults, places);
    if (isOfJob) reckoning.refuse(faults.length);
    else reckoning.fail();
    if (wrong) goTo(wrong);
  } catch (error) {
    showFaults([], places);
    tell("The service does not answer: the job may or may not be there. Submit it again, and there is one.");
  }
  setSending(false);
}

/** The button keeps the focus while the job is sent, but is marked as disabled. */
function setSending(isSending) {
  button.setAttribute("aria-disabled", String(isSending));
  button.textContent = isSending ? "Submitting…" : "Submit job";
}

// The browser may show the page again as it was left, although another page has submitted the job meanwhile.
addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  setSending(false);
  show();
});

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (button.getAttribute("aria-disabled") !== "true") submit();
});

// A job costs something: it is submitted by its button, and not by Enter in a field.
form.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.matches('input[type="text"]')) event.preventDefault();
});

form.addEventListener("input", (event) => {
  const space = event.target.closest(".space");
  if (space && event.target !== space.querySelector("select")) chooseSpace(space, event.target);
  update();
});

form.addEventListener("change", (event) => {
  const { target } = event;
  const choice = target.closest(".choice");
  const space = target.closest(".space");
  if (choice) showOwn(choice);
  if (choice?.dataset.pointer === "/workload/name") chooseWorkload(choice.querySelector("select").value).then(update);
  if (space && target === space.querySelector("select")) chooseSpace(space, target);
  if (target.parentElement.dataset.part !== undefined) showInside(target.parentElement);
  update();
});

// A field's help unfolds when the field gets the focus, and stays unfolded: if it folded when the focus leaves, a
// button below it would move away from the pointer while it is pressed, and get no click.
for (const look of ["focusin", "click"]) {
  form.addEventListener(look, (event) => event.target.closest(".field")?.toggleAttribute("data-unfolded", true));
}

form.addEventListener("click", (event) => {
  const target = event.target.closest("button");
  if (!target) return;
  if (target.matches("[data-add]")) add(target.closest("[data-rows]"));
  else if (target.matches("[data-remove]")) {
    const list = target.closest("[data-rows]");
    removeRow(target.closest("[data-row]"));
    list.focus();
  } else if (target.matches("[data-back]")) chooseSpace(target.closest(".space"), target);
  else return;
  update();
});

document.getElementById("start-over").addEventListener("click", () => {
  forget();
  show();
});

document.querySelector(".panel .switch").addEventListener("click", (event) => {
  const wanted = event.target.dataset.show;
  if (!wanted) return;
  for (const one of document.querySelectorAll(".panel [data-show]")) one.setAttribute("aria-pressed", String(one.dataset.show === wanted));
  for (const one of document.querySelectorAll(".panel [data-shown]")) one.hidden = one.dataset.shown !== wanted;
});

copyOnClick();
show();
