// The list of jobs, kept live.

import { fetchPage, follow } from "./live.js";
import { patchLive } from "./patch.js";
import { keepTimes } from "./times.js";

keepTimes();
follow("/v1/events", async () => patchLive(await fetchPage()));
