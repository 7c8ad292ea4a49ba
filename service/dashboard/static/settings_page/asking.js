// Requests to the API, and the dialogs before them. What is refused is told where it was asked for.

import { openDialog } from "../shared/dialogs.js";
import { refusal, request, SessionEnded } from "../shared/session.js";

/** Sends a request to the API, and gives the JSON of its answer (null: it has none); what it refuses is thrown. */
export async function ask(method, url, body) {
  const headers = body ? { "Content-Type": "application/json" } : {};
  const response = await request(url, { method, headers, body: body && JSON.stringify(body) });
  if (!response.ok) throw new Error(await refusal(response));
  return response.status === 204 ? null : response.json();
}

function show(element, text) {
  element.textContent = text;
  element.hidden = !text;
}

/** What was done, for everybody who reads the page. */
export function tell(text) {
  show(document.getElementById("problem"), "");
  show(document.getElementById("told"), text);
}

/** What could not be done, where no dialog is open. */
export function complain(error) {
  show(document.getElementById("told"), "");
  show(document.getElementById("problem"), error.message);
}

/** The dialog of an id; what is in it is found by `find`. Null: the page has none. */
export function dialog(id) {
  const element = document.getElementById(id);
  if (!element) return null;
  const find = (selector) => element.querySelector(selector);
  const problem = (text) => show(find(".problem"), text);
  element.addEventListener("click", (event) => event.target.closest("[data-close]") && element.close());

  return {
    element,
    find,
    problem,
    open() {
      if (find(".problem")) problem("");
      openDialog(element);
    },
    /** `action(fields)` does what the form asks for. It stays open, and tells why, if that throws. */
    onSubmit(action) {
      const form = find("form");
      form.addEventListener("submit", async (event) => {
        event.preventDefault();
        const button = event.submitter ?? form.querySelector("button:not([type])");
        button.disabled = true;
        problem("");
        try {
          await action(new FormData(form));
          element.close();
          form.reset();
        } catch (error) {
          if (!(error instanceof SessionEnded)) problem(error.message); // the page's notice of it stands in the dialog
        } finally {
          button.disabled = false;
          if (element.open) button.focus(); // what is disabled loses the keyboard
        }
      });
    },
  };
}

/** Calls `action(button)` for clicks on buttons with a `data-` attribute, those of rows that come later, too. */
export function onClick(attribute, action) {
  document.addEventListener("click", (event) => {
    const button = event.target.closest(`button[data-${attribute}]`);
    if (button) action(button);
  });
}
