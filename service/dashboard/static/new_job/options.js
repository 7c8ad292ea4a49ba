// The fields of a workload's options: those of the form's first workload are in the page, those of another one are
// loaded when it is chosen.

import { catalogue } from "./catalogue.js";
import { writeControl } from "./kinds.js";
import { refusal, request } from "../shared/session.js";

const FREE = "";
/** The fields of each workload that was chosen, with what was typed there. */
const known = new Map([...document.querySelectorAll("[data-options-of]")].map((options) => [options.dataset.optionsOf, options]));

function setDefaults(options) {
  for (const element of options.querySelectorAll("[data-pointer]")) writeControl(element, undefined);
}

async function fetched(name) {
  const response = await request(`/jobs/new/options?${new URLSearchParams({ workload: name })}`);
  if (!response.ok) throw new Error(await refusal(response));
  return new DOMParser().parseFromString(await response.text(), "text/html").body;
}

/** The element with a workload's fields; for a workload without a description here, a single JSON field for all
 * options. */
export async function optionsOf(name) {
  const own = Object.hasOwn(catalogue.workloads, name) ? name : FREE;
  if (!known.has(own)) {
    const content = own === FREE ? document.getElementById("free-options").content.cloneNode(true) : await fetched(own);
    const options = document.createElement("div");
    options.append(...content.childNodes);
    setDefaults(options);
    known.set(own, options);
  }
  return known.get(own);
}

export function forgetOptions() {
  for (const options of known.values()) setDefaults(options);
}
