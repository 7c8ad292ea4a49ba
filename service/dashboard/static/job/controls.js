// The buttons of a job's page that call the API, and the dialogs before them.

import { openDialog } from "../shared/dialogs.js";
import { complain, forgetProblem } from "../shared/problem.js";
import { send } from "./asking.js";
import { records } from "./records.js";

/** `shown()` updates the page after an action; `isFinal()`: whether the job has ended. */
export function controls(shown, isFinal) {
  /** Runs an action on the job or a trial, and shows its result; not if the action returns false because it leaves the
   * page. */
  async function act(action) {
    forgetProblem();
    try {
      if ((await action()) === false) return;
      await shown();
    } catch (error) {
      complain(error);
    }
  }

  records(send, act);

  const confirmation = document.getElementById("confirm-cancel");
  confirmation.addEventListener("close", () => {
    if (confirmation.returnValue === "cancel") act(() => send("POST", "/cancel", "The job was not cancelled"));
  });

  /** Returns `ask(number)`, which asks whether an action on a trial is wanted, and then does it. */
  function asked(action, failure) {
    const dialog = document.getElementById(`confirm-${action}`);
    dialog.addEventListener("close", () => {
      if (dialog.returnValue === action) act(() => send("POST", `/trials/${dialog.dataset.number}/${action}`, failure));
    });
    return (number) => {
      dialog.dataset.number = number;
      dialog.querySelector("[data-trial]").textContent = number;
      openDialog(dialog);
    };
  }

  const trialActions = { stop: asked("stop", "The trial was not stopped"), retry: asked("retry", "The trial is not tried again") };

  const budget = document.getElementById("budget-dialog");
  const fields = [...budget.querySelectorAll("input")];

  function askForBudget(button) {
    for (const field of fields) field.value = button.getAttribute(`data-${field.name.replaceAll("_", "-")}`);
    openDialog(budget);
  }

  async function changeBudget() {
    const values = fields.map((field) => [field.name, field.value === "" ? null : Number(field.value)]);
    const failure = "The budget was not changed";
    await send("PATCH", "", failure, { budget: Object.fromEntries(values) });
    if (isFinal()) await send("POST", "/resume", "The job does not go on");
  }

  budget.addEventListener("close", () => {
    if (budget.returnValue === "change") act(changeBudget);
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.id === "cancel") openDialog(confirmation);
    else if (button?.id === "change-budget") askForBudget(button);
    else if (button?.dataset.act in trialActions) trialActions[button.dataset.act](button.closest("tr").dataset.number);
    else if (button?.dataset.act === "close") button.closest("dialog").close("");
    else if (button?.dataset.act) act(() => send("POST", `/${button.dataset.act}`, `${button.textContent} failed`));
  });
}
