// Requests to the API, and the dialogs before them. A refusal is shown where the request was made.

import { openDialog } from "../shared/dialogs.js";
import { refusal, request, SessionEnded } from "../shared/session.js";

/** Sends a request to the API, and returns the JSON of its answer (null: it has none); throws if it is refused. */
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

/** Announces what was done, also to screen readers. */
export function tell(text) {
  show(document.getElementById("problem"), "");
  show(document.getElementById("told"), text);
}

/** Shows what could not be done, if no dialog is open. */
export function complain(error) {
  show(document.getElementById("told"), "");
  show(document.getElementById("problem"), error.message);
}

/** The dialog with an id; `find` finds its elements. Null: the page has none. */
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
    /** `action(fields)` does what the form asks for. If it throws, the dialog stays open, and shows why. */
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

/** Calls `action(button)` for clicks on buttons with a `data-` attribute, also in rows that are added later. */
export function onClick(attribute, action) {
  document.addEventListener("click", (event) => {
    const button = event.target.closest(`button[data-${attribute}]`);
    if (button) action(button);
  });
}
