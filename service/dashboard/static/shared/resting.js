// Pages of what has ended, of which no stream tells: they look now and then whether it goes on, or is not there any more.

import { Gone } from "./live.js";
import { hasEnded, request } from "./session.js";

const LOOK_MS = 10_000;

/**
 * While `isResting()`, calls `refresh()` (async) where something has happened to the job of the API's address `job`
 * after the event `after()`, or where there is no such job any more.
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
