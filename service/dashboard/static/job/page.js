// One job's page: its sections, its buttons, and its live updates.
//
// A section is {load(), refresh(page, events)}: it draws itself once, and again after something has happened to the
// job. `page` holds the parts marked `data-live` as the server renders them now; `events` are those from
// `shared/live.js`, null: anything may have happened.

import { copyOnClick } from "../shared/copying.js";
import { fetchPage, follow, lastEvent } from "../shared/live.js";
import { patchLive } from "../shared/patch.js";
import { complaint } from "../shared/problem.js";
import { lookAfter } from "../shared/resting.js";
import { keepTimes } from "../shared/times.js";
import { api } from "./asking.js";
import { charts } from "./charts.js";
import { controls } from "./controls.js";
import { details } from "./details.js";
import { insights } from "./insights.js";
import { parallel } from "./parallel.js";
import { picking } from "./picking.js";
import { taking } from "./taking.js";
import { keepTitle, showTitle } from "./title.js";
import { trialFilters } from "./trial_filters.js";
import { trials } from "./trials.js";
import { keepWaiting } from "./waiting.js";

const isFinal = () => document.getElementById("moment").dataset.final === "true";
const parts = `${location.pathname}?parts=true`;
const filters = trialFilters(document.getElementById("trial-filters"));
const sections = [charts(picking), insights(picking), parallel(picking, filters), trials(picking, filters)];
const failure = complaint(); // of the sections, to draw themselves

/** Updates the page; false when the job has ended, so nothing more will come by itself. */
async function refresh(events) {
  const page = await fetchPage(parts);
  patchLive(page);
  showTitle();
  refreshedAt = performance.now();
  // After the page: charts that are older than a page that says "ended" would stay old.
  const since = failure.isTold() ? null : events; // what was not drawn is not known by events
  await Promise.all(sections.map((section) => section.refresh(page, since)));
  failure.withdraw();
  if (isFinal()) following = false;
  return following;
}

let following = false;
let refreshedAt = performance.now();

/** Follows the job's events, unless it already does or no more will come. */
function keepLive() {
  if (following || isFinal()) return;
  following = true;
  follow(`${api}/events`, refresh);
}

async function renew() {
  await refresh(null);
  keepLive();
}

// An ended job may be continued elsewhere, or deleted.
lookAfter(api, { isResting: () => !following, after: lastEvent, refresh: renew });

controls(renew, isFinal);
details(renew);
copyOnClick();
taking(picking);
keepTimes();
keepTitle(parts);
keepWaiting(parts, (ms) => performance.now() - refreshedAt >= ms);
Promise.all(sections.map((section) => section.load())).catch(failure.tell);
keepLive();
