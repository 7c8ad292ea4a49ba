// The live output of a trial's ranks: each message of the stream is some lines of one rank. The lines are searched
// here, and the search text is in the address.

import { choose, chosen } from "../shared/address.js";
import { hasEnded, onSession, refusal, request } from "../shared/session.js";

const MOST = 2000;
const LOST_MS = 3000;
const ENDED_MS = 10_000;

function element(name, text = "") {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

/** The text with each occurrence of `sought` marked, ignoring case. */
function marked(text, sought) {
  const parts = [];
  const lower = text.toLowerCase();
  let from = 0;
  // A letter whose lower case is longer would shift the positions.
  for (let at = 0; sought && lower.length === text.length && (at = lower.indexOf(sought, from)) >= 0; ) {
    parts.push(text.slice(from, at), element("mark", text.slice(at, at + sought.length)));
    from = at + sought.length;
  }
  return [...parts, text.slice(from)];
}

const counted = (count) => `${count} line${count === 1 ? "" : "s"}`;

/** Shows the lines in the element `output`, including new ones; `tell(state, text)` gets the state of the stream. */
export function lines(tell) {
  const box = document.getElementById("output");
  const find = document.getElementById("find");
  const found = document.getElementById("found");
  const findAll = document.getElementById("find-all");
  const elsewhere = document.getElementById("output-found");
  const none = document.getElementById("output-none");
  const texts = new WeakMap(); // of each row as it came
  let source = null;
  let timer = null; // of the next look
  let sought = "";

  function show(row) {
    const pre = row.querySelector("pre");
    if (!texts.has(row)) texts.set(row, pre.textContent);
    const kept = texts.get(row).split("\n").filter((line) => line.toLowerCase().includes(sought));
    row.hidden = sought !== "" && kept.length === 0;
    if (row.hidden) return 0;
    pre.replaceChildren(...marked((sought ? kept : texts.get(row).split("\n")).join("\n"), sought));
    return sought ? kept.length : 0;
  }

  /** Shows the loaded lines that contain the search text; lines found by the service are removed. */
  function search() {
    const before = sought;
    sought = find.value.toLowerCase();
    box.hidden = false;
    elsewhere.hidden = true;
    findAll.hidden = !sought;
    if (!sought && !before) return;
    let count = 0;
    for (const row of box.children) count += show(row);
    found.textContent = sought ? `${counted(count)} with it among those here.` : "";
  }

  /** Lets the service search all kept output, and shows the last lines that it finds. */
  async function searchAll() {
    const address = new URL(box.dataset.address, location.href);
    address.searchParams.set("contains", find.value);
    address.searchParams.set("tail", MOST);
    let response = null;
    try {
      response = await request(address, { headers: { Accept: "application/json" } });
      if (!response.ok) throw new Error(await refusal(response));
    } catch (error) {
      const why = error.message.replace(/\.$/, "");
      found.textContent = `Not all of it was looked through: ${why}. Ask again in a few seconds.`;
      return;
    }
    const { items } = await response.json();
    elsewhere.replaceChildren(...items.map(rowOf));
    let count = 0;
    for (const row of elsewhere.children) count += show(row);
    found.textContent = `${counted(count)} with it${count >= MOST ? ", the last ones," : ""} in all that is kept.`;
    box.hidden = true;
    elsewhere.hidden = false;
    findAll.hidden = true;
  }

  function rowOf(chunk) {
    const row = element("div");
    row.className = "printed";
    row.dataset.stream = chunk.stream;
    const label = element("span");
    label.className = "soft";
    const time = element("span", new Date(chunk.recorded_at).toISOString().slice(11, 19));
    time.title = chunk.recorded_at;
    label.append(time, ` ${chunk.rank}`);
    const omitted = chunk.omitted_bytes ? `${chunk.omitted_bytes} bytes were not kept\n` : "";
    row.append(label, element("pre", omitted + chunk.lines.join("\n")));
    return row;
  }

  function append(chunk) {
    const isAtEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 40;
    const row = rowOf(chunk);
    box.append(row);
    if (sought) show(row);
    while (box.childElementCount > MOST) box.firstElementChild.remove();
    none.hidden = true;
    box.dataset.after = chunk.id;
    if (isAtEnd) box.scrollTop = box.scrollHeight;
  }

  function streamAddress() {
    const address = new URL(box.dataset.address, location.href);
    address.searchParams.set("after", box.dataset.after);
    return address;
  }

  /** The page is hidden, or there is a stream. */
  const isUnwanted = () => document.hidden || hasEnded() || (source && source.readyState !== EventSource.CLOSED);

  function open() {
    clearTimeout(timer);
    if (isUnwanted()) return;
    source = new EventSource(streamAddress());
    source.addEventListener("open", () => tell("open", "live"));
    source.addEventListener("log", (event) => append(JSON.parse(event.data)));
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED) lookWhy();
      else tell("lost", "connection lost, trying again");
    });
  }

  /** Finds out why there is no stream, because the browser does not retry by itself: the trial has ended (204), and may
   * be retried, or it was deleted, or the session has ended, or the service has too many streams. */
  async function lookWhy() {
    clearTimeout(timer);
    if (isUnwanted()) return;
    const leaving = new AbortController();
    const options = { headers: { Accept: "text/event-stream" }, signal: leaving.signal };
    const answer = await request(streamAddress(), options).catch(() => null);
    leaving.abort(); // its lines are the next stream's
    if (isUnwanted()) return;
    const status = answer?.status;
    if (status === 204 || status === 404) tell("", "");
    else if (status !== 200) tell("lost", "connection lost, trying again");
    if (status === 204) timer = setTimeout(lookWhy, ENDED_MS);
    else if (status !== 404) timer = setTimeout(open, LOST_MS);
  }

  find.value = chosen("find") ?? "";
  find.addEventListener("input", () => {
    choose("find", find.value || null);
    search();
  });
  findAll.addEventListener("click", searchAll);
  // Browsers allow only six connections to a host, over all tabs.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) source?.close();
    else open();
  });
  addEventListener("pagehide", () => source?.close());
  onSession(() => {
    if (!hasEnded()) return open();
    source?.close();
    tell("lost", "session ended");
  });
  search();
  box.scrollTop = box.scrollHeight;
  open();
}
