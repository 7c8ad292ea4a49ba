// Webhooks: creating, testing, enabling, removing.

import { ask, complain, dialog, onClick, tell } from "./asking.js";
import { deliveries } from "./deliveries.js";

const WEBHOOKS = "/v1/webhooks";

/** `refresh()` updates the page. */
export function webhooks(refresh) {
  const messages = deliveries(refresh);
  onClick("deliveries", (button) => messages.show(button.dataset.deliveries, button.dataset.url));

  const making = dialog("webhook-dialog");
  if (!making) return;
  const made = dialog("new-webhook-dialog");
  const removing = dialog("remove-dialog");

  making.onSubmit(async (fields) => {
    const kinds = fields.getAll("kinds");
    if (!kinds.length) throw new Error("Choose at least one kind of event.");
    const answer = await ask("POST", WEBHOOKS, { url: fields.get("url"), kinds, job_id: fields.get("job_id") || null });
    made.find("code#new-secret").textContent = answer.secret;
    made.open();
  });

  made.element.addEventListener("close", () => {
    made.find("code#new-secret").textContent = "";
    tell("The webhook is made.");
    refresh().catch(complain);
  });

  onClick("test", async (button) => {
    try {
      await ask("POST", `${WEBHOOKS}/${encodeURIComponent(button.dataset.test)}/test`);
      await messages.show(button.dataset.test, button.dataset.url);
    } catch (error) {
      complain(error);
    }
  });

  onClick("enable", async (button) => {
    try {
      await ask("POST", `${WEBHOOKS}/${encodeURIComponent(button.dataset.enable)}/enable`);
      tell("The webhook is on again: what has happened meanwhile is told, too.");
      await refresh();
    } catch (error) {
      complain(error);
    }
  });

  onClick("remove", (button) => {
    removing.find("form").dataset.webhook = button.dataset.remove;
    removing.find("[data-url]").textContent = button.dataset.url;
    removing.open();
  });

  removing.onSubmit(async () => {
    await ask("DELETE", `${WEBHOOKS}/${encodeURIComponent(removing.find("form").dataset.webhook)}`);
    tell("The webhook is removed.");
    await refresh();
  });
}
