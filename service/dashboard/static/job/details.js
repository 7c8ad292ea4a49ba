// The name and the tags of a job, changed in a dialog that stays open until they are saved.

import { openDialog } from "../shared/dialogs.js";
import { readTags, writeTags } from "../shared/tags.js";
import { send } from "./asking.js";

/** `shown()` updates the page after a change. */
export function details(shown) {
  const dialog = document.getElementById("details-dialog");
  const [name, tags] = [dialog.querySelector("input"), dialog.querySelector("textarea")];
  const refused = dialog.querySelector(".problem");
  let before = {}; // what the fields held when they were shown

  document.addEventListener("click", ({ target }) => {
    const button = target.closest("#change-details");
    if (!button) return;
    before = { name: button.dataset.name, tags: writeTags(JSON.parse(button.dataset.tags)) };
    [name.value, tags.value] = [before.name, before.tags];
    refused.hidden = true;
    openDialog(dialog);
  });

  /** Only the changed fields: the others may have been changed elsewhere meanwhile. */
  function changes() {
    const { tags: wanted, problem } = readTags(tags.value);
    if (problem) throw new Error(`Tags: ${problem}`);
    return { ...(name.value !== before.name && { name: name.value }), ...(tags.value !== before.tags && { tags: wanted }) };
  }

  dialog.querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    refused.hidden = true;
    try {
      const changed = changes();
      if (Object.keys(changed).length) await send("PATCH", "", "Not changed", changed);
    } catch (error) {
      refused.textContent = error.message;
      refused.hidden = false;
      return;
    }
    dialog.close();
    await shown().catch(() => {}); // what does not come, the stream brings
  });
}
