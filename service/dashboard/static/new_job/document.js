// The document of the form: read from its fields, and written into them.
//
// `data-pointer` is the place of a field, `data-part` that of an optional part, and `data-rows` that of a list of rows.

import { readControl, valueOf, writeControl } from "./kinds.js";
import { at, put } from "./pointers.js";
import { same } from "./same.js";
import { placesInSpace } from "./spaces.js";

const ALL = "[data-rows], [data-part], [data-pointer]";

const isOpen = (element) => !element.closest("[data-inside][hidden]");
const rowsOf = (list) => [...list.querySelectorAll(":scope > [data-list] > [data-row]")];

/** The pointer of an element, with the index of its row. */
function pointer(element) {
  const own = element.dataset.pointer ?? element.dataset.part ?? element.dataset.rows;
  const row = element.closest("[data-row]");
  return row && row !== element ? own.replace("#", [...row.parentElement.children].indexOf(row)) : own;
}

/**
 * The document, with the element of each place in it, and the fields without a readable value. A list of rows and a
 * part have their own places.
 */
export function readDocument(form) {
  const document = {};
  const places = new Map();
  const problems = [];
  // A workload's refusal of its options is about all of them together.
  places.set("/workload/options", form.querySelector("#options summary"));
  for (const element of [...form.querySelectorAll(ALL)].filter(isOpen)) {
    const own = pointer(element);
    if (element.dataset.rows !== undefined) {
      places.set(own, element);
      put(document, own, rowsOf(element).map(() => ({})));
    } else if (element.dataset.part !== undefined) {
      const select = element.querySelector("select");
      places.set(own, select);
      if (select.selectedIndex > 0) put(document, own, JSON.parse(select.value));
    } else {
      readField(element, own, document, places, problems);
    }
  }
  for (const list of form.querySelectorAll("[data-rows]")) {
    if (same(document[pointer(list).slice(1)], JSON.parse(list.dataset.default))) delete document[pointer(list).slice(1)];
  }
  return { document, places, problems };
}

function readField(element, own, document, places, problems) {
  const isSpace = element.dataset.kind === "space";
  places.set(own, element.matches("input, textarea, fieldset") ? element : element.querySelector("select"));
  if (isSpace) for (const [inner, input] of placesInSpace(element)) places.set(own + inner, input);
  const found = readControl(element);
  if (found.problem !== undefined) problems.push({ pointer: own + (found.pointer ?? ""), message: found.problem });
  // The space of a row is always written, even if it is the default: it identifies a baseline.
  else if (found.given || (isSpace && element.closest("[data-row]"))) put(document, own, valueOf(element));
}

/** Writes a document into the form; fields that it leaves out get their defaults. `chooseWorkload(name)` (async) shows
 * its options. */
export async function fill(form, document, chooseWorkload) {
  const workload = form.querySelector('[data-pointer="/workload/name"]');
  if (document.workload?.name !== undefined) writeControl(workload, document.workload.name);
  await chooseWorkload(valueOf(workload));
  for (const list of form.querySelectorAll("[data-rows]")) {
    for (const row of rowsOf(list)) row.remove();
    for (const _ of at(document, pointer(list)) ?? JSON.parse(list.dataset.default)) addRow(list);
  }
  for (const part of form.querySelectorAll("[data-part]")) {
    const value = at(document, pointer(part));
    const select = part.querySelector("select");
    const states = [...select.options].map((option) => JSON.parse(option.value));
    const isFilled = (state) => typeof value === "object" && value !== null && same(state, {});
    const index = value === undefined ? 0 : states.findIndex((state) => same(state, value) || isFilled(state));
    select.selectedIndex = Math.max(0, index);
    showInside(part);
  }
  for (const element of form.querySelectorAll("[data-pointer]")) {
    if (element !== workload) writeControl(element, at(document, pointer(element)));
  }
}

/** Shows the fields of a part if it exists. */
export function showInside(part) {
  part.querySelector("[data-inside]").hidden = part.querySelector("select").value !== "{}";
}

let numRows = 0;

/** Adds an empty row to a list, and returns it. */
export function addRow(list) {
  const row = list.querySelector(":scope > template").content.firstElementChild.cloneNode(true);
  numRows += 1;
  for (const element of row.querySelectorAll("[id], [for], [aria-describedby]")) {
    for (const name of ["id", "for", "aria-describedby"]) {
      if (element.hasAttribute(name)) element.setAttribute(name, element.getAttribute(name).replaceAll("#", `row${numRows}`));
    }
  }
  list.querySelector(":scope > [data-list]").append(row);
  for (const element of row.querySelectorAll("[data-pointer]")) writeControl(element, undefined);
  list.querySelector(":scope > [data-add]").disabled = rowsOf(list).length >= Number(list.dataset.max);
  return row;
}

/** Removes a row from its list. */
export function removeRow(row) {
  const list = row.closest("[data-rows]");
  row.remove();
  list.querySelector(":scope > [data-add]").disabled = false;
}
