// The page of the cluster, kept live. Workers come and go without events of jobs, so the page also reloads by itself.

import { fetchPage, follow } from "../shared/live.js";
import { patchLive } from "../shared/patch.js";
import { hasEnded } from "../shared/session.js";
import { keepTimes } from "../shared/times.js";

const LOOK_MS = 5000;

async function refresh() {
  patchLive(await fetchPage());
}

keepTimes();
follow("/v1/events", refresh);
// Errors are shown, and retried, by the stream above.
setInterval(() => document.hidden || hasEnded() || refresh().catch(() => {}), LOOK_MS);
