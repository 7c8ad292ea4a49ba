// Keeps a page up to date: listens to a stream of events and passes them on, at most twice a second.

import { keepFocus } from "./focus.js";
import { hasEnded, onSession, request } from "./session.js";

const KINDS = ["message", "job.state", "job.changed", "job.deleted", "job.recommendation", "trial.state", "trial.changed", "trial.measured"];
const MIN_INTERVAL_MS = 500;
const MAX_INTERVAL_MS = 10_000;
const FAILED_MS = 3000;
const SILENT_MS = 120_000;
const LOOK_MS = 5000;

/** The event up to which the page has everything. */
export const lastEvent = () => document.getElementById("moment").dataset.event;

/** Thrown if a page no longer exists. */
export class Gone extends Error {}

/**
 * Calls `refresh(events)` (async; returns false when nothing more will come) after events of the stream at `url`: {id,
 * kind, data} of each, in their order; null: it is unknown what has happened, so everything must be reloaded.
 * `after()`: the event up to which the page has everything.
 * The stream is closed while the page is hidden, because browsers allow only six connections to a host over all tabs,
 * and while there is no session. A stream that was silent for long is opened again: a browser does not notice if the
 * other end has gone, for instance while the machine slept, and does not show the page the comments by which the
 * service signals that it is alive.
 */
export function follow(url, refresh, after = lastEvent) {
  const note = document.getElementById("stream");
  let source = null;
  let timer = null;
  let running = false;
  let over = false;
  let lost = false; // the stream was, since the last look
  let events = []; // null: anything may have happened
  let earliest = 0;
  let heardAt = 0; // by the clock, which goes on while the machine sleeps

  function tell(state, text) {
    note.hidden = !text;
    note.dataset.state = state;
    note.textContent = text;
  }

  function refreshSoon() {
    if (timer !== null || running || !isAwake()) return; // once it is awake again, `wake` looks at all
    timer = setTimeout(run, Math.max(0, earliest - performance.now()));
  }

  function tellLost() {
    tell("lost", hasEnded() ? "session ended" : "connection lost, trying again");
  }

  function heard({ type, data, lastEventId }) {
    heardAt = Date.now();
    if (events !== null) events.push({ id: Number(lastEventId), kind: type, data: JSON.parse(data).data });
    refreshSoon();
  }

  function lookAtAll() {
    events = null;
    refreshSoon();
  }

  async function run() {
    timer = null;
    running = true;
    const told = events;
    events = [];
    const began = performance.now();
    let least = MIN_INTERVAL_MS;
    try {
      if ((await refresh(told)) === false) finish();
      else if (source?.readyState === EventSource.OPEN) tell("open", "live");
    } catch (error) {
      if (error instanceof Gone) {
        finish();
        tell("lost", "deleted");
      } else {
        tellLost();
        events = null;
        least = FAILED_MS;
      }
    }
    running = false;
    // Slow updates are requested less often.
    const now = performance.now();
    earliest = now + Math.min(MAX_INTERVAL_MS, Math.max(least, 3 * (now - began)));
    if (events === null || events.length) refreshSoon();
  }

  const isAwake = () => !over && !document.hidden && !hasEnded();

  function open() {
    heardAt = Date.now();
    source = new EventSource(`${url}?after=${after()}`);
    source.addEventListener("open", () => {
      heardAt = Date.now();
      tell("open", "live");
      if (lost) lookAtAll(); // the service may have another database now
      lost = false;
    });
    source.addEventListener("error", () => {
      lost = true;
      tellLost();
      if (source?.readyState === EventSource.CLOSED) {
        // The stream was refused, not interrupted: the browser does not try again by itself.
        close();
        lookAtAll(); // where the session has ended, or the job has, this finds out
        setTimeout(() => isAwake() && !source && open(), 3000);
      }
    });
    for (const kind of KINDS) source.addEventListener(kind, heard);
  }

  function close() {
    source?.close();
    source = null;
  }

  function lookAtStream() {
    if (!source || !isAwake()) return;
    if (source.readyState === EventSource.CONNECTING) tellLost();
    if (Date.now() - heardAt < SILENT_MS) return;
    close();
    open();
  }

  function finish() {
    over = true;
    close();
    tell("", "");
  }

  /** After a pause: one update for everything, instead of every missed event. */
  async function wake() {
    if (over || source || hasEnded()) return;
    events = null;
    if (!running) {
      clearTimeout(timer);
      await run();
    }
    if (isAwake() && !source) open();
  }

  onSession(() => {
    if (over) return;
    if (!hasEnded()) return void wake();
    close();
    tellLost();
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) return void wake();
    close();
    clearTimeout(timer);
    timer = null;
  });
  setInterval(lookAtStream, LOOK_MS);
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && wake());
  if (isAwake()) open();
}

/** Shows the page that says "not found": figures and buttons of something that is gone would mislead. */
function showGone(next) {
  const section = next.querySelector("#main > section");
  if (!section) throw new Error("this 404 is none of the service's own");
  section.setAttribute("role", "alert");
  keepFocus(() => document.getElementById("main").replaceChildren(document.importNode(section, true)));
  document.title = next.title;
}

/**
 * The current document at an address of this site; by default, that of the open page. Throws if that fails; if the
 * address no longer exists, the open page says so first.
 */
export async function fetchPage(address = location.href) {
  const response = await request(address, { headers: { Accept: "text/html" } });
  if (response.status === 404) {
    showGone(new DOMParser().parseFromString(await response.text(), "text/html"));
    throw new Gone(`${address} is not there any more`);
  }
  if (!response.ok) throw new Error(`${address}: ${response.status}`);
  return new DOMParser().parseFromString(await response.text(), "text/html");
}
