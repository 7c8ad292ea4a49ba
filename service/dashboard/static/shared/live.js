// Keeps a page true while things happen: listens to a stream of events and asks for a refresh, at most twice a second.

const KINDS = ["message", "job.state", "job.changed", "job.deleted", "job.recommendation", "trial.state", "trial.measured"];
const MIN_INTERVAL_MS = 500;

/**
 * Calls `refresh` (async; gives false when there is nothing more to come) after events of the stream at `url`.
 * The stream rests while the page is hidden: browsers allow only six connections to a host, over all tabs.
 */
export function follow(url, refresh) {
  const note = document.getElementById("stream");
  let source = null;
  let timer = null;
  let running = false;
  let wanted = false;
  let over = false;
  let interval = MIN_INTERVAL_MS;

  function tell(state, text) {
    note.hidden = !text;
    note.dataset.state = state;
    note.textContent = text;
  }

  function request() {
    wanted = true;
    if (timer === null && !running && !over) timer = setTimeout(run, interval);
  }

  async function run() {
    timer = null;
    running = true;
    wanted = false;
    const began = performance.now();
    try {
      if ((await refresh()) === false) finish();
      else if (source?.readyState === EventSource.OPEN) tell("open", "live");
    } catch (error) {
      tell("lost", "connection lost, trying again");
      wanted = true;
    }
    running = false;
    // A large page that takes long to render is asked for less often.
    interval = Math.max(MIN_INTERVAL_MS, 3 * (performance.now() - began));
    if (wanted) request();
  }

  function open() {
    source = new EventSource(url);
    source.addEventListener("open", () => {
      tell("open", "live");
      request(); // what happened between the page and the stream
    });
    source.addEventListener("error", () => {
      tell("lost", "connection lost, trying again");
      if (source?.readyState === EventSource.CLOSED) {
        // Refused, not dropped: the browser does not try again by itself.
        close();
        request(); // where the session is over, this leads to the page to log in on
        setTimeout(() => !over && !document.hidden && !source && open(), 3000);
      }
    });
    for (const kind of KINDS) source.addEventListener(kind, request);
  }

  function close() {
    source?.close();
    source = null;
  }

  function finish() {
    over = true;
    close();
    tell("", "");
  }

  document.addEventListener("visibilitychange", () => {
    if (over) return;
    if (document.hidden) close();
    else if (!source) open();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && !over && !source && open());
  open();
}

/** The page at this address as the server renders it now. Throws if it cannot. */
export async function fetchPage() {
  const response = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!response.ok) throw new Error(`${location.href}: ${response.status}`);
  if (response.redirected && new URL(response.url).pathname === "/login") location.assign(response.url);
  return new DOMParser().parseFromString(await response.text(), "text/html");
}
