// The session of whoever looks at a page: requests that go by it, and what the page says once it has ended.

const LOOK_MS = 5000;
const PATIENCE_MS = 60_000;
const LOG_IN = "/login";

const notice = document.getElementById("session-ended");
const listeners = [];
let ended = false;

/** What a request throws that needs a new log-in. */
export class SessionEnded extends Error {
  constructor() {
    super("your session has ended");
  }
}

/** Whether there is no session any more. */
export const hasEnded = () => ended;

/** Calls `changed()` when the session has ended, and when there is one again, as after a log-in in another tab. */
export function onSession(changed) {
  listeners.push(changed);
}

/** The dialog before the page's reader, behind which nothing can be reached; null: there is none. */
export const openModal = () => [...document.querySelectorAll("dialog:modal")].at(-1) ?? null;

/** Puts the notice where it can be reached. */
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

/** `fetch`; an answer that asks for a new log-in is told on the page, and thrown. What is only read is not waited for
 * for ever: where the connection is dead, the page would be, too. */
export async function request(address, options = {}) {
  const patience = options.method ? {} : { signal: AbortSignal.timeout(PATIENCE_MS) };
  const response = await fetch(address, { ...patience, ...options }).catch((error) => {
    if (options.signal?.aborted) throw error; // whoever asked wants no answer any more
    throw new Error(`The service does not answer${options.method ? ": what was asked for may have been done, or not" : ""}.`);
  });
  // Who asks for a page is led to where one logs in, others are refused.
  const isOver = response.status === 401 || (response.redirected && new URL(response.url).pathname === LOG_IN);
  if (isOver || response.ok) note(isOver); // what is refused for another reason tells nothing of the session
  if (isOver) throw new SessionEnded();
  return response;
}

/** Why the service refused what was asked of it, in its own words. */
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
    // It has ended, which the page says now, or the service does not answer, which tells nothing of it.
  }
}

// A page of what has ended asks for nothing by itself. Once the session has ended, only a reader who comes back can
// have logged in again.
if (notice.dataset.name) setInterval(() => ended || look(), LOOK_MS);
document.addEventListener("visibilitychange", look);
addEventListener("focus", look);
addEventListener("pageshow", (event) => event.persisted && look());
