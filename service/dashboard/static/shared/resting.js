// Pages of ended jobs and trials, which have no stream: now and then they check whether it continues, or no longer
// exists.

import { Gone } from "./live.js";
import { hasEnded, request } from "./session.js";

const LOOK_MS = 10_000;

/**
 * While `isResting()`, calls `refresh()` (async) if something has happened to the job at the API's address `job` after
 * the event `after()`, or if the job no longer exists.
 */
export function lookAfter(job, { isResting, after, refresh }) {
  let running = false;

  async function look() {
    if (document.hidden || hasEnded() || running || !isResting()) return;
    running = true;
    try {
      const response = await request(`${job}/events?page_size=1&after=${after()}`, { headers: { Accept: "application/json" } });
      if (response.status === 404 || (response.ok && (await response.json()).items.length)) await refresh();
    } catch (error) {
      if (error instanceof Gone) stop(); // else it is asked again
    }
    running = false;
  }

  function stop() {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", look);
  }

  const timer = setInterval(look, LOOK_MS);
  document.addEventListener("visibilitychange", look);
}
