// The buttons of a job's page that ask the API for something, and the dialogs before them.

import { complain, forgetProblem, send } from "./asking.js";
import { records } from "./records.js";

/** `shown()` brings the page up to date after an action; `isFinal()`: whether the job has ended. */
export function controls(shown, isFinal) {
  /** Does something to the job or a trial, and shows what came of it; nothing, if the action leaves the page: false. */
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

  const again = document.getElementById("confirm-retry");

  function askToRetry(number) {
    again.dataset.number = number;
    again.querySelector("[data-trial]").textContent = number;
    again.returnValue = "";
    again.showModal();
  }

  again.addEventListener("close", () => {
    if (again.returnValue === "retry") act(() => send("POST", `/trials/${again.dataset.number}/retry`, "Retry failed"));
  });

  const budget = document.getElementById("budget-dialog");
  const fields = [...budget.querySelectorAll("input")];

  function askForBudget(button) {
    for (const field of fields) field.value = button.getAttribute(`data-${field.name.replaceAll("_", "-")}`);
    budget.returnValue = "";
    budget.showModal();
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
    if (button?.id === "cancel") {
      confirmation.returnValue = "";
      confirmation.showModal();
    } else if (button?.id === "change-budget") askForBudget(button);
    else if (button?.dataset.act === "retry") askToRetry(button.closest("tr").dataset.number);
    else if (button?.dataset.act === "close") button.closest("dialog").close("");
    else if (button?.dataset.act) {
      const row = button.closest("tr");
      const path = row ? `/trials/${row.dataset.number}` : "";
      act(() => send("POST", `${path}/${button.dataset.act}`, `${button.textContent} failed`));
    }
  });
}
