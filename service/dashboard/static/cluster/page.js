// The page of the cluster, kept live. Workers that come and go are no events of jobs: it looks by itself, too.

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
// What fails, the stream above tells and tries again.
setInterval(() => document.hidden || hasEnded() || refresh().catch(() => {}), LOOK_MS);
