// The selected jobs, and the actions on all of them.

const bar = document.getElementById("chosen");
const boxes = () => [...document.querySelectorAll('#jobs input[name="chosen"]')];
const rows = () => boxes().filter((box) => box.checked).map((box) => box.closest("tr"));

/** The selected jobs of the page: id, name and, as shown on the page, their state and whether they are archived. */
export function chosenJobs() {
  return rows().map(({ id, dataset }) => ({ id, name: dataset.name, state: dataset.state, isArchived: "archived" in dataset }));
}

/** Shows how many are selected, and the actions on them. */
export function showChosen() {
  const number = rows().length;
  const all = document.getElementById("choose-all");
  bar.hidden = number === 0;
  document.getElementById("num-chosen").textContent = number ? `${number} ${number === 1 ? "job" : "jobs"} chosen` : "";
  const link = document.getElementById("compare");
  link.href = `/compare?jobs=${chosenJobs().map(({ id }) => encodeURIComponent(id)).join(",")}`;
  link.hidden = number < 2;
  if (!all) return;
  all.checked = number > 0 && number === boxes().length;
  all.indeterminate = number > 0 && !all.checked;
}

function chooseAll(isChosen) {
  for (const box of boxes()) box.checked = isChosen;
  showChosen();
}

export function chooseNone() {
  chooseAll(false);
}

/** Where the keyboard focus goes when the bar below the list has disappeared. */
export function focusList() {
  document.getElementById("choose-all")?.focus();
}

/** Makes a change that replaces rows; selected rows that still exist afterwards stay selected. */
export function keepChosen(change) {
  const chosen = new Set(chosenJobs().map(({ id }) => id));
  change();
  for (const box of boxes()) box.checked = chosen.has(box.closest("tr").id);
  showChosen();
}

export function followChoices() {
  document.addEventListener("change", ({ target }) => {
    if (target.id === "choose-all") chooseAll(target.checked);
    else if (target.name === "chosen") showChosen();
  });
  document.getElementById("choose-none").addEventListener("click", () => {
    chooseNone();
    focusList();
  });
  showChosen(); // a browser may have kept choices over a reload
}
