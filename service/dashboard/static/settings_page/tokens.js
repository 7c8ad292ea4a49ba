// Tokens: creating, showing once, revoking.

import { ask, dialog, onClick, tell } from "./asking.js";

const DAY_MS = 86_400_000;
const TOKENS = "/v1/admin/tokens";

/** `refresh()` updates the page. */
export function tokens(refresh) {
  const making = dialog("token-dialog");
  if (!making) return;
  const made = dialog("new-token-dialog");
  const revoking = dialog("revoke-dialog");

  making.onSubmit(async (fields) => {
    const days = fields.get("days");
    const answer = await ask("POST", TOKENS, {
      name: fields.get("name"),
      project: fields.get("project"),
      scopes: fields.getAll("scopes"),
      expires_at: days ? new Date(Date.now() + days * DAY_MS).toISOString() : null,
    });
    made.find("[data-name]").textContent = answer.name;
    made.find("code#new-token").textContent = answer.token;
    made.open();
  });

  // Only then: if it was the first token, the updated page asks for it.
  made.element.addEventListener("close", () => {
    const name = made.find("[data-name]").textContent;
    made.find("code#new-token").textContent = "";
    tell(`Token ${name} is made.`);
    refresh();
  });

  onClick("revoke", (button) => {
    const { revoke, name } = button.dataset;
    revoking.find("form").dataset.prefix = revoke;
    revoking.find("[data-name]").textContent = name;
    revoking.find("[data-own]").hidden = !("own" in button.dataset);
    revoking.open();
  });

  revoking.onSubmit(async () => {
    const answer = await ask("POST", `${TOKENS}/${encodeURIComponent(revoking.find("form").dataset.prefix)}/revoke`);
    tell(`Token ${answer.name} is revoked.`);
    await refresh();
  });
}
