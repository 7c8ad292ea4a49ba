// The buttons of a trial's page that call the API, and the dialogs before them.

import { send } from "../job/asking.js";
import { openDialog } from "../shared/dialogs.js";
import { complain, forgetProblem } from "../shared/problem.js";

/** A value as typed: JSON, or else a text. */
function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** `trial`: the trial's path below its job. `shown()` updates the page after an action. */
export function controls(trial, shown) {
  async function act(action) {
    forgetProblem();
    try {
      await action();
      await shown();
    } catch (error) {
      complain(error);
    }
  }

  function afterDialog(id, value, action) {
    const dialog = document.getElementById(id);
    dialog?.addEventListener("close", () => dialog.returnValue === value && act(action));
  }

  async function vary() {
    const dialog = document.getElementById("vary-dialog");
    const fields = [...dialog.querySelectorAll("input[name]")].map((input) => [input.name, valueOf(input.value)]);
    const asked = {
      phase: dialog.dataset.phase,
      parameters: Object.fromEntries(fields),
      beyond_bounds: document.getElementById("beyond").checked,
      ...(dialog.dataset.optimizer && { optimizer: dialog.dataset.optimizer }),
    };
    const response = await send("POST", "/trials", "The variation was refused", asked);
    location.assign(`${location.pathname.replace(/\d+$/, "")}${(await response.json()).number}`);
  }

  // The dialog stays open until its trial exists, so that refused values can be corrected.
  const refused = document.getElementById("vary-refused");
  document.querySelector("#vary-dialog form")?.addEventListener("submit", async (event) => {
    event.preventDefault();
    refused.hidden = true;
    try {
      await vary();
    } catch (error) {
      refused.textContent = error.message;
      refused.hidden = false;
    }
  });

  const note = document.querySelector("#note-dialog textarea");
  afterDialog("note-dialog", "change", () => send("PATCH", trial, "The note was not kept", { note: note.value }));
  afterDialog("stop-dialog", "stop", () => send("POST", `${trial}/stop`, "The trial was not stopped"));
  afterDialog("retry-dialog", "retry", () => send("POST", `${trial}/retry`, "The trial is not tried again"));

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.dataset.ask === "note-dialog") note.value = document.querySelector("#note .notes")?.textContent ?? "";
    if (button?.dataset.ask) openDialog(document.getElementById(button.dataset.ask));
    else if (button?.dataset.act === "close") button.closest("dialog").close("");
  });
}
