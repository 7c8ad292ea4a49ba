// The session of the page's reader: requests that use it, and the notice once it has ended.

const LOOK_MS = 5000;
const PATIENCE_MS = 60_000;
const LOG_IN = "/login";

const notice = document.getElementById("session-ended");
const listeners = [];
let ended = false;

/** Thrown by a request that needs a new log-in. */
export class SessionEnded extends Error {
  constructor() {
    super("your session has ended");
  }
}

/** Whether the session has ended. */
export const hasEnded = () => ended;

/** Calls `changed()` when the session has ended, and when there is one again, for instance after a log-in in another
 * tab. */
export function onSession(changed) {
  listeners.push(changed);
}

/** The open modal dialog, which blocks the rest of the page; null: there is none. */
export const openModal = () => [...document.querySelectorAll("dialog:modal")].at(-1) ?? null;

/** Puts the notice where the reader can reach it. */
export function placeNotice() {
  const dialog = ended ? openModal() : null;
  if (dialog === notice.closest("dialog")) return;
  if (dialog) dialog.prepend(notice);
  else document.getElementById("main").before(notice);
  notice.querySelector("a").target = dialog ? "_blank" : ""; // the dialog keeps what was typed
}

function note(isOver) {
  if (isOver === ended) return;
  ended = isOver;
  notice.hidden = !ended;
  placeNotice();
  const here = location.pathname + location.search + location.hash;
  notice.querySelector("a").href = `${LOG_IN}?next=${encodeURIComponent(here)}`;
  for (const changed of listeners) changed();
}

/** `fetch`; if the answer asks for a new log-in, the page says so, and the error is thrown. Reading requests time out:
 * otherwise a dead connection would block the page. */
export async function request(address, options = {}) {
  const patience = options.method ? {} : { signal: AbortSignal.timeout(PATIENCE_MS) };
  const response = await fetch(address, { ...patience, ...options }).catch((error) => {
    if (options.signal?.aborted) throw error; // whoever asked wants no answer any more
    throw new Error(`The service does not answer${options.method ? ": what was asked for may have been done, or not" : ""}.`);
  });
  // A request for a page is redirected to the log-in page, other requests are refused.
  const isOver = response.status === 401 || (response.redirected && new URL(response.url).pathname === LOG_IN);
  if (isOver || response.ok) note(isOver); // what is refused for another reason tells nothing of the session
  if (isOver) throw new SessionEnded();
  return response;
}

/** Why the service refused a request, in its own words. */
export async function refusal(response) {
  const answer = await response.json().catch(() => ({}));
  return answer.detail ?? answer.title ?? `the service answered ${response.status}`;
}

/** Finds out whether there is a session. */
export async function look() {
  if (document.hidden) return;
  try {
    await request("/session", { cache: "no-store" });
  } catch {
    // It has ended, which the page now says, or the service does not answer, which says nothing about it.
  }
}

// A page of an ended job asks for nothing by itself. After the session has ended, only a returning reader can have
// logged in again.
if (notice.dataset.name) setInterval(() => ended || look(), LOOK_MS);
document.addEventListener("visibilitychange", look);
addEventListener("focus", look);
addEventListener("pageshow", (event) => event.persisted && look());
