// Keeps "3 min ago" and "running for 42 s" true in an open page; the same words as service/dashboard/times.py and
// `duration` of service/evidence/in_words/wording.py.

const UNITS = [["d", 86400], ["h", 3600], ["min", 60]];

function ago(moment) {
  const seconds = (Date.now() - moment) / 1000;
  for (const [unit, size] of UNITS) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  return "just now";
}

/** A time, given as RFC 3339, in the form that pages show: how long ago it was, and as a tooltip the time in UTC. */
export function moment(text) {
  const [date, time] = new Date(text).toISOString().slice(0, 19).split("T");
  const element = Object.assign(document.createElement("time"), { dateTime: `${date}T${time}Z`, title: `${date} ${time} UTC` });
  element.textContent = ago(Date.parse(text));
  return element;
}

/** Seconds in at most two units. */
export function duration(seconds) {
  const padded = (number) => String(number).padStart(2, "0");
  if (seconds > 0 && seconds < 0.0995) return `${Number((1000 * seconds).toPrecision(2))} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${padded(whole % 60)} s`;
  const hours = Math.floor(whole / 3600);
  if (hours < 24) return `${hours} h ${padded(Math.floor((whole % 3600) / 60))} min`;
  return `${Math.floor(hours / 24)} d ${padded(hours % 24)} h`;
}

/** Lets the times of `data-elapsed`, in seconds, continue from the server's last value. */
function keepElapsed() {
  const since = new WeakMap(); // of each element: {told, at}
  setInterval(() => {
    if (document.hidden) return;
    for (const element of document.querySelectorAll("[data-elapsed]")) {
      const told = element.dataset.elapsed;
      if (since.get(element)?.told !== told) since.set(element, { told, at: performance.now() });
      const text = duration(Number(told) + (performance.now() - since.get(element).at) / 1000);
      if (element.textContent !== text) element.textContent = text;
    }
  }, 1000);
}

export function keepTimes() {
  keepElapsed();
  setInterval(() => {
    for (const time of document.querySelectorAll("time[datetime]")) {
      const text = ago(Date.parse(time.dateTime));
      if (time.textContent !== text) time.textContent = text;
    }
  }, 20_000);
}
