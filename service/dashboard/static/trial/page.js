// A trial's page, kept live; the chosen metric, axis and scale are in its address.

import { api } from "../job/asking.js";
import { choose, chosen } from "../shared/address.js";
import { chart } from "../shared/charts.js";
import { copyOnClick } from "../shared/copying.js";
import { fetchPage, follow } from "../shared/live.js";
import { patchLive } from "../shared/patch.js";
import { complain, complaint, forgetProblem } from "../shared/problem.js";
import { lookAfter } from "../shared/resting.js";
import { keepTimes } from "../shared/times.js";
import { checkpoints } from "./checkpoints.js";
import { controls } from "./controls.js";
import { lines } from "./lines.js";
import { prediction } from "./prediction.js";

const CHOICES = ["metric", "x", "scale"];
const number = Number(document.getElementById("job").dataset.number);
const trial = `/trials/${number}`;
const actions = () => document.getElementById("actions").dataset;

function figureAddress() {
  const asked = CHOICES.filter((name) => chosen(name) !== null).map((name) => [name, chosen(name)]);
  return `${api}${trial}/plots/curve?${new URLSearchParams(asked)}`;
}

/** The address of the parts marked `data-live`, with the choices. */
function parts() {
  const address = new URL(location.href);
  address.searchParams.set("parts", "true");
  return address;
}

/** Whether an event may change this page: measurements and notes of other trials do not. */
const isShown = ({ kind, data }) => !["trial.measured", "trial.changed"].includes(kind) || data.number === number;

const curve = chart("curve", figureAddress);
const saved = checkpoints(`${api}${trial}/checkpoints`);
const failure = complaint(); // of both, to draw themselves
let drawnStep = actions().step;

let turn = 0;

/** Shows the current parts, for the current choices. */
async function renew() {
  const own = ++turn;
  const page = await fetchPage(parts());
  if (own === turn) patchLive(page);
}

/** Updates the page; false when neither the trial nor its job continues, so nothing more will come. */
async function refresh(events) {
  if (events !== null && !events.some(isShown)) return following;
  await renew();
  if (actions().step !== drawnStep || actions().final === "true" || failure.isTold()) {
    const { step } = actions();
    await Promise.all([curve.load(), saved.load()]);
    drawnStep = step;
    failure.withdraw();
  }
  if (isOver()) following = false;
  return following;
}

const lastEvent = () => actions().event;
const isOver = () => actions().final === "true" && actions().over === "true";
let following = false;

function keepLive() {
  if (following || isOver()) return;
  following = true;
  follow(`${api}/events`, refresh, lastEvent);
}

document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-choose]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  forgetProblem();
  choose(link.dataset.choose, link.dataset.value);
  try {
    await renew();
    await curve.load();
    // The zoom of another metric does not fit this one.
    await Plotly.relayout("curve", { "xaxis.autorange": true, "yaxis.autorange": true });
    if (link.dataset.choose === "metric") document.getElementById("curve-section").scrollIntoView({ block: "nearest" });
  } catch (error) {
    complain(error);
  }
});

// Arrow keys lead to the neighbouring trials, unless an element on the page uses them.
document.addEventListener("keydown", (event) => {
  const way = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
  const isTaken = event.target !== document.body && !event.target.closest("#turn");
  if (!way || isTaken || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  document.querySelector(`#turn a[rel="${way}"]`)?.click();
});

async function catchUp() {
  await refresh(null);
  keepLive();
}

controls(trial, catchUp);

// An ended trial may be continued elsewhere, or its job deleted.
lookAfter(api, { isResting: () => !following, after: lastEvent, refresh: catchUp });

copyOnClick();
keepTimes();
lines(() => {});
prediction(`${location.pathname}/prediction`);
Promise.all([curve.load(), saved.load()]).catch(failure.tell);
keepLive();
