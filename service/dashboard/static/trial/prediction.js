// The predicted cost of a trial, requested when its fold is opened, because the service builds the model for it.

import { request } from "../shared/session.js";

const PATIENCE_MS = 40_000; // the service answers after 25 s, with a refusal if need be

/** Fills the fold each time it is opened, because the measurements may have changed. */
export function prediction(address) {
  const fold = document.getElementById("predicted");
  fold?.addEventListener("toggle", async () => {
    if (!fold.open) return;
    const place = fold.querySelector("div");
    if (!place.hasChildNodes()) place.textContent = "The model is built for it: a few seconds…";
    try {
      const response = await request(address, { signal: AbortSignal.timeout(PATIENCE_MS), headers: { Accept: "text/html" } });
      if (!response.ok) throw new Error(`There is no prediction now (${response.status}). Open this again later.`);
      const made = new DOMParser().parseFromString(await response.text(), "text/html");
      place.replaceChildren(...made.body.children);
    } catch (error) {
      place.textContent = error.message;
    }
  });
}
