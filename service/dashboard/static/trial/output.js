// What the ranks of a trial print, as it comes: each message of the stream is some lines of one rank.

const MOST = 2000;

const box = document.getElementById("output");
const note = document.getElementById("stream");

function tell(state, text) {
  note.hidden = !text;
  note.dataset.state = state;
  note.textContent = text;
}

function element(name, text = "") {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

function append(chunk) {
  const isAtEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 40;
  const row = element("div");
  row.className = "printed";
  row.dataset.stream = chunk.stream;
  const label = element("span");
  label.className = "soft";
  const time = element("time", new Date(chunk.recorded_at).toISOString().slice(11, 19));
  time.dateTime = chunk.recorded_at;
  label.append(time, ` ${chunk.rank}`);
  const lines = element("pre");
  if (chunk.omitted_bytes) lines.append(element("em", `${chunk.omitted_bytes} bytes were not kept`), "\n");
  lines.append(chunk.lines.join("\n"));
  row.append(label, lines);
  box.append(row);
  while (box.childElementCount > MOST) box.firstElementChild.remove();
  document.getElementById("output-none").hidden = true;
  if (isAtEnd) box.scrollTop = box.scrollHeight;
}

const address = new URL(box.dataset.address, location.href);
address.searchParams.set("after", box.dataset.after);
const source = new EventSource(address);
source.addEventListener("open", () => tell("open", "live"));
source.addEventListener("log", (event) => append(JSON.parse(event.data)));
source.addEventListener("error", () => {
  // Closed for good: the trial has ended (204), or the session is over.
  if (source.readyState === EventSource.CLOSED) tell("", "");
  else tell("lost", "connection lost, trying again");
});
box.scrollTop = box.scrollHeight;
