// The data of a chart from the service: requested completely first, and then only what is new.

import { refusal, request } from "./session.js";

/**
 * `address(known)`: the address of the request: with known data, for what is new; null: for everything. `merge(known,
 * answer)` returns the new known data. `load()` requests everything, `refresh()` what is new; each returns false if
 * there was a newer request meanwhile: only the answer to the last request counts, whatever the order of the answers.
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

/** Whether events are about trials; null: unknown. */
export function tellOfTrials(events) {
  return events === null || events.some((event) => event.kind.startsWith("trial."));
}
