// The table of trials: a section of a job's page.

import { sortable } from "../shared/table.js";

/** `picking` holds the trial that the reader looks at. */
export function trials(picking) {
  const table = document.getElementById("trials");
  const sort = sortable(table);

  function mark() {
    for (const button of table.querySelectorAll("button.pick")) {
      button.setAttribute("aria-pressed", String(Number(button.closest("tr").dataset.number) === picking.number));
    }
  }

  picking.listen((number, reveal) => {
    mark();
    if (reveal) document.getElementById(`trial-${number}`)?.scrollIntoView({ block: "nearest" });
  });

  table.addEventListener("click", (event) => {
    const row = event.target.closest("tbody tr[data-number]");
    if (row && !event.target.closest("button.act, a")) picking.pick(Number(row.dataset.number));
  });

  return {
    load: async () => {},
    /** The page's rows have just been brought up to date. */
    refresh: async () => {
      mark();
      sort();
    },
  };
}
