// The table of trials: a section of a job's page. The server sorts, filters and pages it; the request is in the page's
// address, and the picked trial in its fragment, `#trial-30`.
//
// While the reader looks at the rows they stay in place: their cells change, and a note says what would move.

import { chosenPairs, choosePairs } from "../shared/address.js";
import { patch } from "../shared/patch.js";
import { refusal, request } from "../shared/session.js";
import { FILTERS } from "./trial_filters.js";

const NAMES = [...FILTERS, "order_by", "page"];

/** The number of the trial that the address names; null: it names none. */
function numberInAddress() {
  const found = /^#trial-(\d+)$/.exec(location.hash);
  return found && Number(found[1]);
}

/** `picking` holds the picked trial, `filters` the filters of the trials. */
export function trials(picking, filters) {
  const part = document.getElementById("trials-part");
  const problem = document.getElementById("trials-problem");
  const path = `/jobs/${encodeURIComponent(document.getElementById("job").dataset.jobId)}/trials`;
  let asked = chosenPairs(NAMES);
  let known = { url: "", tag: "" }; // of the part that is shown
  let turn = 0;

  const rows = () => [...part.querySelectorAll("tbody tr[data-number]")];
  const region = () => part.querySelector(".scroll");
  const found = () => document.getElementById("trials-found").dataset;

  function mark() {
    for (const button of part.querySelectorAll("button.pick")) {
      button.setAttribute("aria-pressed", String(Number(button.closest("tr").dataset.number) === picking.number));
    }
  }

  /** True if the rows are visible, or have the keyboard focus. */
  function isRead() {
    const box = part.querySelector("tbody").getBoundingClientRect();
    const isSeen = !document.hidden && box.bottom > 0 && box.top < innerHeight;
    return isSeen || part.contains(document.activeElement);
  }

  /** Puts the rows in an order; the focused element keeps the focus. */
  function arrange(numbers) {
    const body = part.querySelector("tbody");
    const wanted = numbers.map((number) => document.getElementById(`trial-${number}`));
    if (wanted.every((row, index) => row === body.rows[index])) return;
    const focused = document.activeElement;
    body.append(...wanted);
    if (body.contains(focused)) focused.focus({ preventScroll: true });
  }

  /** The part of the page for the pairs of an address, and its tag; null: it is already shown. */
  async function fetchPart(pairs, more = []) {
    const others = [...new URLSearchParams(location.search)].filter(([name]) => !NAMES.includes(name));
    const url = `${path}?${new URLSearchParams([...others, ...pairs, ...more])}`;
    const headers = { Accept: "text/html" };
    if (known.url === url) headers["If-None-Match"] = known.tag;
    const response = await request(url, { headers, cache: "no-store" });
    if (response.status === 304) return null;
    if (!response.ok) throw new Error(`The trials could not be read: ${await refusal(response)}`);
    const page = new DOMParser().parseFromString(`<div>${await response.text()}</div>`, "text/html");
    return { url, tag: response.headers.get("ETag") ?? "", content: page.body.firstElementChild };
  }

  function put({ url, tag, content }) {
    known = { url, tag };
    const numbers = [...content.querySelectorAll("tbody tr[data-number]")].map((row) => row.dataset.number);
    content.id = part.id;
    patch(part, content);
    arrange(numbers);
    mark();
  }

  /** Shows the trials for the pairs of an address; `trial`: the page with this trial. False: there was a
   * newer request. */
  async function show(pairs, trial = null) {
    const own = ++turn;
    problem.hidden = true;
    try {
      const next = await fetchPart(pairs, trial === null ? [] : [["trial", trial]]);
      if (own !== turn) return false;
      if (next) put(next);
      asked = pairs.filter(([name]) => name !== "page");
      if (found().page !== "1") asked.push(["page", found().page]);
      choosePairs(NAMES, asked);
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
      return false;
    }
    return true;
  }

  const order = () => asked.filter(([name]) => name === "order_by");

  /** Shows another page, or another order of the same trials, from its first row on. */
  async function turnTo(pairs) {
    if (await show(pairs)) region().scrollTop = 0;
  }

  /** Scrolls to a trial, on any page; filters that exclude it are removed. */
  async function reveal(number) {
    if (!document.getElementById(`trial-${number}`)) {
      const pairs = asked.filter(([name]) => name !== "page");
      if (!(await show(pairs, number))) return;
      if (found().missing !== undefined) {
        filters.show(pairs.filter(([name]) => name === "columns"));
        if (!(await show([...filters.pairs(), ...order()], number))) return;
      }
    }
    document.getElementById(`trial-${number}`)?.scrollIntoView({ block: "nearest" });
  }

  /** Follows the address after a link, or a step back. */
  function follow() {
    const number = numberInAddress();
    const pairs = chosenPairs(NAMES);
    if (JSON.stringify(pairs) !== JSON.stringify(asked)) {
      filters.show(pairs);
      show(pairs);
    }
    if (number === picking.number) return;
    if (number === null) picking.pick(picking.number);
    else picking.pick(number, true);
  }

  picking.listen((number, isRevealed) => {
    mark();
    const address = new URL(location.href);
    address.hash = number === null ? "" : `trial-${number}`;
    if (numberInAddress() !== number) history.replaceState(history.state, "", address);
    if (isRevealed) reveal(number);
  });

  filters.listen(() => turnTo([...filters.pairs(), ...order()]));

  addEventListener("popstate", follow);
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#trial-"]');
    if (link && link.hash === location.hash) reveal(numberInAddress()); // the browser goes nowhere
  });

  part.addEventListener("click", (event) => {
    const { target } = event;
    const row = target.closest("tr[data-number]");
    const sort = target.closest("button[data-order]");
    const without = target.closest("button[data-without]");
    const page = target.closest("a[data-page]");
    if (sort) turnTo([...filters.pairs(), ["order_by", sort.dataset.order]]);
    else if (without) {
      region().focus({ preventScroll: true });
      filters.without(without.dataset.without, without.dataset.value);
    } else if (target.closest("button[data-renew]")) {
      region().focus({ preventScroll: true });
      turnTo(asked);
    } else if (page && !(event.ctrlKey || event.metaKey || event.shiftKey)) {
      event.preventDefault();
      turnTo([...filters.pairs(), ...order(), ["page", page.dataset.page]]);
    } else if (row && !target.closest("button.act, a")) picking.pick(Number(row.dataset.number));
  });

  return {
    load: async () => {
      filters.show(asked);
      if (numberInAddress() !== null) picking.pick(numberInAddress(), true);
    },
    /** Something has happened to the job. */
    refresh: async () => {
      const held = isRead() ? rows().map((row) => row.dataset.number).join(",") : "";
      const own = turn;
      const next = await fetchPart(asked, held ? [["held", held]] : []);
      if (next && own === turn) put(next);
    },
  };
}
