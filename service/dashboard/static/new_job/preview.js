// The estimate of the job, requested from the API while the form is filled in: one request at a time, and not at each
// key.

import { estimate, faultsOf, isOfJob } from "./asking.js";
import { optimizerTitle } from "./catalogue.js";
import { showCompared } from "./presets.js";
import { hasEnded } from "../shared/session.js";
import { duration } from "../shared/times.js";

const PAUSE_MS = 600;
const MAX_AGAIN = 6;
/** Answers that mean "later": the service still works on it, is busy, or was asked too often. */
const LATER = [429, 503];

const status = document.getElementById("verdict");
const box = document.getElementById("estimate");
const numbers = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function made(name, properties, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

function bytes(number) {
  return number >= 2 ** 30 ? `${numbers.format(number / 2 ** 30)} GiB` : `${numbers.format(number / 2 ** 20)} MiB`;
}

const sideName = (side) => (side === "search" ? "search" : `baseline ${optimizerTitle(side)}`);

function figures(found) {
  const phases = Object.entries(found.num_trials);
  const trials = phases.reduce((sum, [, number]) => sum + number, 0);
  const told = phases.map(([phase, number]) => `${phase} ${number}`);
  if (found.num_left_over) told.push(`${found.num_left_over} left over`);
  const rows = [["Trials", whole.format(trials), told.join(", ")]];
  rows.push(["Steps", whole.format(found.max_steps), `up to ${whole.format(found.num_steps)} a trial`]);
  const unknown = "not known: no job like it has run here";
  rows.push(["Time", found.max_seconds === null ? "–" : duration(found.max_seconds), found.max_seconds === null ? unknown : "start-up included"]);
  rows.push(["Device-hours", found.max_device_hours === null ? "–" : numbers.format(found.max_device_hours), ""]);
  if (found.currency) rows.push(["Cost", found.max_cost === null ? "–" : `${found.max_cost.toFixed(2)} ${found.currency}`, ""]);
  for (const [side, space] of Object.entries(found.memory?.spaces ?? {})) {
    const activations = space.activation_bytes === null ? "" : `, and ${bytes(space.activation_bytes)} of activations`;
    rows.push([`Memory, ${sideName(side)}`, bytes(space.largest_bytes), `on each rank at most${activations}`]);
  }
  return rows;
}

/** Why trials would fail, or not begin. */
function misfits(found) {
  const { shortage, construction_fails, problem, step_fails, activations_problem } = found.memory ?? {};
  const told = shortage ? [`No trial can start: ${shortage}.`] : [];
  if (construction_fails) told.push(`The workload cannot be built: its code raised ${problem}.`);
  if (step_fails) told.push(`A step fails: the workload's code raised ${activations_problem}.`);
  const machine = found.memory?.machine_bytes ?? null;
  for (const [side, space] of Object.entries(found.memory?.spaces ?? {})) {
    if (space.share_infeasible === 1) told.push(`Nothing fits: the ${sideName(side)} would train nothing.`);
    else if (space.share_infeasible) {
      told.push(`${numbers.format(100 * space.share_infeasible)}% of the ${sideName(side)}'s configs do not fit into memory.`);
    } else if (machine !== null && space.default_bytes > machine) {
      told.push(`Too large: a rank of the ${sideName(side)} needs more than the ${bytes(machine)} of the service's machine.`);
    }
  }
  return told;
}

/** Shows what a job would cost; returns words that say whether it is valid. */
function show(found) {
  const told = misfits(found);
  const note = document.getElementById("misfits");
  note.hidden = told.length === 0;
  note.textContent = told.join(" ");
  const costs = figures(found).map(([name, value, basis]) =>
    made("div", {}, made("dt", { textContent: name }), made("dd", { textContent: value }), made("dd", { className: "sub", textContent: basis })),
  );
  box.querySelector(".costs").replaceChildren(...costs);
  box.querySelector(".lines").replaceChildren(...found.lines.map((line) => made("li", {}, ...prose(line))));
  box.hidden = false;
  showCompared(found.presets);
  return told.length ? "Valid, but trials would not all come to their end:" : "Valid.";
}

/** A sentence as nodes, with `code` for text between backticks. */
function prose(line) {
  const parts = line.split("`");
  if (parts.length % 2 === 0) return [line]; // one is not closed
  return parts.map((part, place) => (place % 2 ? made("code", { textContent: part }) : part));
}

function verdictOf(number) {
  return `Not valid yet: ${number === 1 ? "one thing is" : `${number} things are`} to mend.`;
}

/** Returns `ask(document, places)`; `showFaults` shows the faults. */
export function preview(showFaults) {
  let timer = null;
  let running = null;
  let asked = null;

  function tell(text, state) {
    if (status.textContent !== text) status.textContent = text;
    box.dataset.state = state;
  }

  async function ask(document, places, again) {
    const own = new AbortController();
    running = own;
    try {
      const answer = await estimate(document, own.signal);
      if (running !== own) return;
      if (LATER.includes(answer.status) && again < MAX_AGAIN) {
        tell("Reckoning takes a while…", "asking");
        timer = setTimeout(() => ask(document, places, again + 1), 1000 * (answer.retryAfter ?? 2));
        return;
      }
      running = null;
      if (answer.ok) {
        showFaults([], places);
        tell(show(answer.answer), "known");
      } else {
        const faults = faultsOf(answer);
        showFaults(faults, places);
        box.hidden = true;
        if (hasEnded()) asked = null; // after a new log-in the same is asked again
        const unknown = hasEnded() ? "Not known: your session has ended." : "Not known.";
        tell(isOfJob(answer) ? verdictOf(faults.length) : unknown, "wrong");
      }
    } catch (error) {
      if (own.signal.aborted || running !== own) return;
      running = null;
      asked = null;
      box.hidden = true;
      tell("The service does not answer. It is asked again after the next change.", "wrong");
    }
  }

  return {
    /** Asks about a document, unless it was asked about just now. */
    ask(document, places) {
      const text = JSON.stringify(document);
      if (text === asked) return;
      this.stop();
      asked = text;
      tell("Reckoning…", "asking");
      timer = setTimeout(() => ask(document, places, 0), PAUSE_MS);
    },
    /** Drops the current request. */
    stop() {
      clearTimeout(timer);
      running?.abort();
      running = null;
      asked = null;
    },
    /** Says that no request is made, because of the number of faults. */
    refuse(number) {
      this.stop();
      box.hidden = true;
      tell(verdictOf(number), "wrong");
    },
    /** Says that the job was not accepted, although nothing is wrong with it. */
    fail() {
      this.stop();
      box.hidden = true;
      tell(hasEnded() ? "Not submitted: your session has ended." : "Not submitted.", "wrong");
    },
  };
}
