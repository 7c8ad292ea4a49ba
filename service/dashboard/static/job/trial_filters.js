// The reader's filters of a job's trials: the form above their table, which parallel coordinates also set.

/** The names of the form's values in an address. */
export const FILTERS = ["state", "phase", "value", "parameter", "columns"];

const number = (text) => (text === "" ? null : Number(text));

/** "low..high" of an address as two texts; a single number means both. */
function ends(text) {
  const [low, high] = text.split("..");
  return [low, high ?? low];
}

/** `form` has a fieldset of two inputs for each range, and a select for each parameter with choices. */
export function trialFilters(form) {
  const listeners = new Set();
  const watchers = new Set();
  const states = [...form.querySelectorAll("input[name=state]")];
  const columns = [...form.querySelectorAll("input[name=columns]")];
  const phase = form.elements.phase;
  const ranges = new Map([...form.querySelectorAll("[data-range]")].map((own) => [own.dataset.range, [...own.querySelectorAll("input")]]));
  const choices = new Map([...form.querySelectorAll("[data-choices]")].map((own) => [own.dataset.choices, own.querySelector("select")]));

  function tell() {
    for (const listener of [...listeners, ...watchers]) listener();
  }

  function fill(name, low, high) {
    const [from, to] = ranges.get(name);
    from.value = low ?? "";
    to.value = high ?? "";
  }

  /** True if every range has numbers, the lower one first; else the browser says what is wrong. */
  function isValid() {
    for (const [from, to] of ranges.values()) {
      const isReversed = from.value !== "" && to.value !== "" && Number(from.value) > Number(to.value);
      to.setCustomValidity(isReversed ? `must be ${from.value} or more` : "");
    }
    return form.reportValidity();
  }

  form.addEventListener("change", () => isValid() && tell());
  form.addEventListener("submit", (event) => event.preventDefault());

  const filters = {
    /** The filters, as pairs of an address. */
    pairs() {
      const found = states.filter((box) => box.checked).map((box) => ["state", box.value]);
      if (phase.value) found.push(["phase", phase.value]);
      for (const [name, [from, to]] of ranges) {
        if (from.value === "" && to.value === "") continue;
        const range = from.value === to.value ? from.value : `${from.value}..${to.value}`;
        found.push(name === "" ? ["value", range] : ["parameter", `${name}=${range}`]);
      }
      for (const [name, select] of choices) if (select.value) found.push(["parameter", `${name}=${select.value}`]);
      if (!columns.every((box) => box.checked)) {
        found.push(["columns", columns.filter((box) => box.checked).map((box) => box.value).join(",")]);
      }
      return found;
    },

    /** Shows the pairs of an address in the form. */
    show(pairs) {
      for (const box of states) box.checked = false;
      for (const box of columns) box.checked = true;
      phase.value = "";
      for (const name of ranges.keys()) fill(name);
      for (const select of choices.values()) select.value = "";
      for (const [name, value] of pairs) {
        if (name === "state") for (const box of states) box.checked ||= box.value === value;
        else if (name === "phase") phase.value = value;
        else if (name === "columns") for (const box of columns) box.checked = value.split(",").includes(box.value);
        else if (name === "value") fill("", ...ends(value));
        else if (name === "parameter") {
          const parameter = value.slice(0, value.indexOf("="));
          const wanted = value.slice(parameter.length + 1);
          if (choices.has(parameter)) choices.get(parameter).value = wanted;
          else if (ranges.has(parameter)) fill(parameter, ...ends(wanted));
        }
      }
      for (const watcher of watchers) watcher();
    },

    /** [low, high] of a parameter's numbers, each null if that end is open; of the objective by the name "". */
    range: (name) => (ranges.has(name) ? ranges.get(name).map((input) => number(input.value)) : [null, null]),
    /** The choice of a parameter, as the API reads it; "": any. */
    choice: (name) => choices.get(name)?.value ?? "",
    /** The wanted states; none: all. */
    states: () => states.filter((box) => box.checked).map((box) => box.value),
    phase: () => phase.value,

    setRange(name, low, high) {
      fill(name, low, high);
      tell();
    },

    setChoice(name, value) {
      choices.get(name).value = value;
      tell();
    },

    /** Removes the filter that its button names; "": all of them. */
    without(name, value) {
      const kept = filters.pairs().filter(([kind, text]) => {
        if (kind === "columns") return true;
        if (name === "") return false;
        return kind !== name || (kind === "state" ? text !== value : kind === "parameter" && !text.startsWith(`${value}=`));
      });
      filters.show(kept);
      tell();
    },

    /** Calls `listener()` when the filters change. */
    listen: (listener) => listeners.add(listener),
    /** The same, but also when the form only follows the address. */
    watch: (watcher) => watchers.add(watcher),
  };
  return filters;
}
