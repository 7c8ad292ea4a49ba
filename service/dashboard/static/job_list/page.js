// The list of jobs, kept live.

import { fetchPage, follow } from "../shared/live.js";
import { patchLive } from "../shared/patch.js";
import { keepTimes } from "../shared/times.js";

keepTimes();
follow("/v1/events", async () => patchLive(await fetchPage()));
