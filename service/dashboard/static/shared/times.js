// Keeps "3 min ago" true in an open page; the same words as service/dashboard/moments.py.

const UNITS = [["d", 86400], ["h", 3600], ["min", 60]];

function ago(moment) {
  const seconds = (Date.now() - moment) / 1000;
  for (const [unit, size] of UNITS) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  return "just now";
}

export function keepTimes() {
  setInterval(() => {
    for (const time of document.querySelectorAll("time[datetime]")) {
      const text = ago(Date.parse(time.dateTime));
      if (time.textContent !== text) time.textContent = text;
    }
  }, 20_000);
}
