// The bar below the table of trials: the picked trial, and buttons that copy its config.

import { copyText } from "../shared/copying.js";
import { refusal, request } from "../shared/session.js";
import { api } from "./asking.js";

/** A trial's config as text, in the form that a button names. */
async function written(number, form) {
  const response = await request(`${api}/trials/${number}/config`);
  if (!response.ok) throw new Error(`The config of trial ${number} could not be read: ${await refusal(response)}`);
  const { python, ...config } = await response.json();
  return form === "python" ? python : JSON.stringify(config, null, 2);
}

export function taking(picking) {
  const bar = document.getElementById("picked");
  const link = bar.querySelector("a");
  const problem = document.getElementById("trials-problem");

  picking.listen((number) => {
    bar.hidden = number === null;
    if (number === null) return;
    link.href = `${location.pathname}/trials/${number}`;
    link.textContent = `Trial ${number}`;
  });

  bar.addEventListener("click", async ({ target }) => {
    const button = target.closest("button");
    if (!button) return;
    if (button.dataset.form === undefined) {
      document.querySelector(`#trial-${picking.number} .pick`)?.focus({ preventScroll: true });
      picking.pick(picking.number);
      return;
    }
    problem.hidden = true;
    try {
      await copyText(await written(picking.number, button.dataset.form), button);
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
    }
  });
}
