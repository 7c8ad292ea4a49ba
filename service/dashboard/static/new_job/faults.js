// The faults of the job, shown at their fields.

import { below, parent, pointerOf } from "./pointers.js";

const general = document.getElementById("problem");
const list = document.getElementById("faults");

/** The element nearest to a pointer, and the path from there; null: there is only the whole job. */
function placeOf({ pointer, field }, places) {
  for (const start of [pointer, field === undefined ? null : pointerOf(field)]) {
    for (let at = start ?? ""; at !== "" && at !== null; at = parent(at)) {
      if (places.has(at) && places.get(at)) return { element: places.get(at), path: below(start, at) };
    }
  }
  return null;
}

function clear() {
  general.hidden = true;
  general.textContent = "";
  list.replaceChildren();
  list.hidden = true;
  for (const element of document.querySelectorAll("[aria-invalid]")) element.removeAttribute("aria-invalid");
  for (const element of document.querySelectorAll("#job-form .fault")) {
    element.hidden = true;
    element.textContent = "";
  }
  for (const element of document.querySelectorAll("#job-form [data-marks]")) element.textContent = "";
}

function labelOf(element) {
  if (element.getAttribute("aria-label")) return element.getAttribute("aria-label");
  if (element.matches("summary")) return element.firstChild.textContent.trim();
  const legend = element.matches("fieldset") ? element.querySelector("legend") : null;
  const label = legend ?? element.closest(".field, .space")?.querySelector("label");
  return label?.firstChild?.textContent.trim() || element.id;
}

/** Goes to a field, and unfolds it if necessary. */
export function goTo(element) {
  for (let details = element.closest("details"); details; details = details.parentElement.closest("details")) {
    details.open = true;
  }
  element.focus();
  element.scrollIntoView({ block: "center" });
}

/** Shows the faults; returns the first element at fault, in the order of the form. */
export function showFaults(faults, places) {
  clear();
  const found = [];
  for (const fault of faults) {
    const place = placeOf(fault, places);
    if (!place) {
      tell(fault.field ? `${fault.field}: ${fault.message}` : fault.message);
      continue;
    }
    const { element, path } = place;
    const message = path ? `${path}: ${fault.message}` : fault.message;
    found.push({ element, message });
    if (element.matches("input, select, textarea")) element.setAttribute("aria-invalid", "true");
    const note = element.closest(".field, .part, .rows")?.querySelector(":scope > .fault") ?? element.closest("section")?.querySelector(".fault");
    if (note) {
      note.textContent = note.textContent ? `${note.textContent} ${message}` : message;
      note.hidden = false;
    }
  }
  found.sort((a, b) => (a.element.compareDocumentPosition(b.element) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1));
  for (const { element, message } of found) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: labelOf(element) });
    button.addEventListener("click", () => goTo(element));
    const item = document.createElement("li");
    item.append(button, ` ${message}`);
    list.append(item);
  }
  list.hidden = found.length === 0;
  mark(found);
  return found[0]?.element ?? null;
}

/** Shows on each folded section how many of its fields are wrong. */
function mark(found) {
  for (const details of document.querySelectorAll("#job-form details")) {
    const inside = new Set(found.filter(({ element }) => details.contains(element)).map(({ element }) => element)).size;
    const marks = details.querySelector(":scope > summary [data-marks]");
    if (marks) marks.textContent = inside === 0 ? "" : `${inside} to mend`;
  }
}

/** Shows what is wrong with the whole job. */
export function tell(message) {
  general.textContent = general.textContent ? `${general.textContent} ${message}` : message;
  general.hidden = false;
}
