// Projects: creating them, and setting quotas.

import { ask, dialog, onClick, tell } from "./asking.js";

const PROJECTS = "/v1/admin/projects";
const GB = 1e9;

/** The quotas of a form; an empty field is no limit. */
function quotas(fields) {
  const names = ["max_running_jobs", "max_queued_jobs", "max_device_hours", "max_stored_bytes"];
  const given = names.map((name) => {
    const text = fields.get(name);
    if (text === "") return [name, null];
    return [name, name === "max_stored_bytes" ? Math.round(Number(text) * GB) : Number(text)];
  });
  return Object.fromEntries(given);
}

/** `refresh()` updates the page. */
export function projects(refresh) {
  const making = dialog("project-dialog");
  if (!making) return;
  const changing = dialog("quotas-dialog");

  making.onSubmit(async (fields) => {
    const answer = await ask("POST", PROJECTS, { name: fields.get("name"), ...quotas(fields) });
    offer(answer.name);
    tell(`Project ${answer.name} is made. Tokens of it can be made now.`);
    await refresh();
  });

  /** A new project can have tokens at once. */
  function offer(name) {
    const choice = document.querySelector('#token-dialog select[name="project"]');
    const option = document.createElement("option");
    option.textContent = name;
    choice?.append(option);
  }

  onClick("quotas", (button) => {
    changing.find("form").dataset.project = button.dataset.quotas;
    changing.find("[data-name]").textContent = button.dataset.quotas;
    for (const field of changing.element.querySelectorAll("input")) {
      const value = button.getAttribute(`data-${field.name.replaceAll("_", "-")}`);
      field.value = value !== "" && field.name === "max_stored_bytes" ? Number(value) / GB : value;
    }
    changing.open();
  });

  changing.onSubmit(async (fields) => {
    const name = changing.find("form").dataset.project;
    await ask("PATCH", `${PROJECTS}/${encodeURIComponent(name)}`, quotas(fields));
    tell(`The quotas of ${name} are changed.`);
    await refresh();
  });
}
