// A job as a record: notes, clones, deletion. Each opens a dialog, and then calls the API.

import { openDialog } from "../shared/dialogs.js";

/**
 * Opens the dialogs of `data-ask` buttons and does what is chosen in them. `send(method, path, failure, body)` calls
 * the API about the job and returns the response; `act(action)` shows the result of an action.
 */
export function records(send, act) {
  const dialog = (id) => document.getElementById(id);
  const notes = dialog("notes-dialog").querySelector("textarea");
  const name = dialog("clone-dialog").querySelector("input");

  document.addEventListener("click", (event) => {
    const asked = event.target.closest("button[data-ask]")?.dataset.ask;
    if (!asked) return;
    if (asked === "notes-dialog") notes.value = document.querySelector("#notes .notes")?.textContent ?? "";
    openDialog(dialog(asked));
  });

  function chosen(id, value, action) {
    dialog(id).addEventListener("close", () => dialog(id).returnValue === value && act(action));
  }

  chosen("notes-dialog", "change", () => send("PATCH", "", "The notes were not kept", { notes: notes.value }));
  chosen("clone-dialog", "clone", async () => {
    const response = await send("POST", "/clone", "The job was not cloned", { name: name.value });
    location.assign(`/jobs/${encodeURIComponent((await response.json()).id)}`);
    return false;
  });
  chosen("delete-dialog", "delete", async () => {
    await send("DELETE", "", "The job was not deleted");
    location.assign("/");
    return false;
  });
}
