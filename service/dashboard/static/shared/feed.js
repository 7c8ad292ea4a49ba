// What a chart has of the service: asked for whole, and then for what has come since.

import { refusal, request } from "./session.js";

/**
 * `address(known)`: where to ask; with what is known, for what has come since; null: whole. `merge(known, answer)` gives
 * what is known then. `load()` asks for all, `refresh()` for what has come since; each gives false where it was asked
 * anew meanwhile: only the answer to the last question counts, in whatever order they come.
 */
export function feed(address, merge) {
  let known = null;
  let isLoading = false; // what is known is of other choices, or nothing
  let turn = 0;

  async function ask(from) {
    const own = ++turn;
    isLoading ||= from === null;
    const response = await request(address(from));
    if (!response.ok) throw new Error(`A chart could not be drawn: ${await refusal(response)}. Load the page again in a few seconds.`);
    const answer = await response.json();
    if (own !== turn) return false;
    isLoading = false;
    known = merge(from, answer);
    return true;
  }

  return {
    known: () => known,
    load: () => ask(null),
    refresh: () => ask(isLoading ? null : known),
  };
}

/** Whether events tell of trials; null: there is no telling. */
export function tellOfTrials(events) {
  return events === null || events.some((event) => event.kind.startsWith("trial."));
}
