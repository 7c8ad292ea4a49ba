// The messages to a webhook, newest first, kept up to date while they are shown.

import { hasEnded, onSession, SessionEnded } from "../shared/session.js";
import { moment } from "../shared/times.js";
import { ask, dialog } from "./asking.js";

const LOOK_MS = 2000;
const NUM_SHOWN = 25;
const STATES = { waiting: "queued", delivered: "completed", failed: "failed" };

function part(name, text, attributes = {}) {
  const element = document.createElement(name);
  element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

/** The result of a message, in words. */
function outcome(delivery) {
  if (delivery.status !== null) return `answered ${delivery.status} in ${(delivery.seconds ?? 0).toFixed(2)} s`;
  if (delivery.answer) return delivery.answer;
  return delivery.attempts ? "no answer yet" : "not sent yet";
}

/** `changed()` is called after each update: the answers may have changed the webhook. */
export function deliveries(changed) {
  const shown = dialog("deliveries-dialog");
  const list = shown.find("ol");
  const maySteer = shown.element.dataset.maySteer === "true";
  let webhook = null;
  let timer = null;

  const isShown = () => shown.element.open && !hasEnded();
  const path = () => `/v1/webhooks/${encodeURIComponent(webhook)}/deliveries`;

  function row(delivery) {
    const item = document.createElement("li");
    const sent = part("span", "", { class: "sub" });
    sent.append(moment(delivery.created_at));
    item.append(
      part("span", delivery.state, { class: "state", "data-state": STATES[delivery.state] ?? "" }),
      part("span", delivery.kind, { class: "tag" }),
      sent,
      part("span", outcome(delivery), { class: "outcome" }),
    );
    if (delivery.attempts > 1) item.append(part("span", `${delivery.attempts} attempts`, { class: "sub" }));
    if (maySteer && delivery.state !== "waiting") {
      item.append(part("button", "Send again", { type: "button", "data-again": delivery.id }));
    }
    return item;
  }

  async function look() {
    clearTimeout(timer);
    try {
      const { items } = await ask("GET", `${path()}?page_size=${NUM_SHOWN}`);
      const focused = document.activeElement?.dataset?.again;
      list.replaceChildren(...items.map(row));
      if (focused) list.querySelector(`[data-again="${CSS.escape(focused)}"]`)?.focus();
      list.hidden = !items.length;
      shown.find("[data-none]").hidden = items.length > 0;
      shown.problem("");
    } catch (error) {
      if (!(error instanceof SessionEnded)) shown.problem(error.message);
    }
    if (isShown()) timer = setTimeout(look, LOOK_MS);
  }

  list.addEventListener("click", async (event) => {
    const again = event.target.closest("button[data-again]")?.dataset.again;
    if (!again) return;
    try {
      await ask("POST", `${path()}/${encodeURIComponent(again)}/redeliver`);
      await look();
    } catch (error) {
      shown.problem(error.message);
    }
  });

  onSession(() => isShown() && look());

  shown.element.addEventListener("close", () => {
    clearTimeout(timer);
    changed().catch(() => {});
  });

  return {
    async show(id, url) {
      webhook = id;
      shown.find("p[data-url]").textContent = url;
      list.replaceChildren();
      shown.open();
      await look();
    },
  };
}
