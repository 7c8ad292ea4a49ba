// The submission of the job: once, however often the button is pressed.

import { faultsOf, isOfJob, submit, submitClone } from "./asking.js";
import { SENT, keep, kept } from "./keeping.js";
import { same } from "./same.js";

/** Unique text. `crypto.randomUUID` exists only on https and localhost. */
function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * The merge patch (RFC 7396) that turns one document into another for the API: fields that a document leaves out are as
 * in `defaults`. Null: there is no such patch, because it would need a null for a field that the API does not know.
 */
function patchOf(before, after, defaults) {
  const patch = {};
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const isField = Object.hasOwn(defaults, name);
    const value = Object.hasOwn(after, name) ? after[name] : isField ? defaults[name] : undefined;
    if (value === undefined) patch[name] = null; // takes it away
    else if (same(before[name], value)) continue;
    else if (value === null && !isField) return null;
    else if (!isObject(value)) patch[name] = value;
    else {
      const earlier = isObject(before[name]) ? before[name] : null;
      const inner = patchOf(earlier ?? {}, value, isObject(defaults[name]) ? defaults[name] : {});
      if (inner === null) return null;
      if (!earlier || Object.keys(inner).length) patch[name] = inner;
    }
  }
  return patch;
}

/**
 * Returns `send(document)`, which creates the job and returns its id, or {faults, isOfJob}. If an answer is lost, it is
 * requested again with the same key as long as the document is the same, also after a reload.
 */
export function submission({ clone, defaults }) {
  return async function send(document) {
    const text = JSON.stringify(document);
    const sent = kept(SENT);
    const key = sent?.text === text ? sent.key : newKey();
    keep(SENT, { text, key });
    const patch = clone === null ? null : patchOf(clone.submission, document, defaults);
    const found = patch === null ? await submit(document, key) : await submitClone(clone.id, patch, key);
    return found.ok ? { id: found.answer.id } : { faults: faultsOf(found), isOfJob: isOfJob(found) };
  };
}
