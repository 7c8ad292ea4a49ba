// The presets that tuned models like the job's compare, beside the form: the first one can be chosen there.

const box = document.getElementById("compared");
const factors = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const chosen = () => document.querySelector('.space[data-pointer="/search_space"] select');

function row(name, told) {
  const element = document.createElement("div");
  for (const [kind, text] of [["dt", name], ["dd", told]]) {
    element.append(Object.assign(document.createElement(kind), { textContent: text, className: kind === "dt" ? "mono" : "" }));
  }
  return element;
}

/** Shows how the presets compare, or nothing: then no tuned model near the job's compares any. */
export function showCompared(compared) {
  box.hidden = !compared;
  if (!compared) return;
  const { presets, num_models: number, octaves } = compared;
  const told = (one, place) => (place === 0 ? "best" : one.loss_ratio === null ? "" : `${factors.format(one.loss_ratio)}× the loss`);
  box.querySelector("dl").replaceChildren(...presets.map((one, place) => row(one.preset, told(one, place))));
  box.querySelector("[data-basis]").textContent =
    `The best trials of each preset, at equal steps, on ${number} tuned ${number === 1 ? "model" : "models"}; the nearest is ${octaves.toFixed(1)} octaves away.`;
  const button = box.querySelector("button");
  const first = presets[0].preset;
  button.dataset.preset = first;
  button.textContent = `Search ${first}`;
  button.hidden = chosen().value === first || ![...chosen().options].some((option) => option.value === first);
}

box.querySelector("button").addEventListener("click", (event) => {
  const select = chosen();
  select.value = event.target.dataset.preset;
  event.target.hidden = true;
  select.focus();
  select.dispatchEvent(new Event("change", { bubbles: true }));
});
