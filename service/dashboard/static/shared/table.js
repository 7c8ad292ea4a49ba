// A table that sorts by the buttons in its head; keeps its order while rows change.

const collator = new Intl.Collator("en", { numeric: true });

function valueOf(row, column) {
  const cell = row.cells[column];
  return cell.dataset.value ?? cell.textContent.trim();
}

/** Empty last in either direction; numbers as numbers; all else as text. */
function compare(a, b, sign) {
  if (a === "" || b === "") return (a === "") - (b === "");
  const [x, y] = [Number(a), Number(b)];
  return sign * (Number.isNaN(x) || Number.isNaN(y) ? collator.compare(a, b) : x - y);
}

/** Gives a function that sorts again after the rows have changed. */
export function sortable(table) {
  let key = null; // id of the sorted column's head: columns may be added
  let direction = "ascending";

  function sort() {
    const heads = [...table.tHead.rows[0].cells];
    const column = Math.max(0, heads.findIndex((head) => head.id === key));
    heads.forEach((head, index) => {
      if (key !== null && index === column) head.setAttribute("aria-sort", direction);
      else head.removeAttribute("aria-sort");
    });
    const body = table.tBodies[0];
    const rows = [...body.rows];
    if (rows.some((row) => !row.dataset.number)) return;
    const sign = direction === "ascending" ? 1 : -1;
    const sorted = rows
      .map((row) => [row, valueOf(row, column), Number(row.dataset.number)])
      .sort((a, b) => compare(a[1], b[1], sign) || a[2] - b[2])
      .map(([row]) => row);
    if (sorted.every((row, index) => row === rows[index])) return;
    const focused = document.activeElement;
    body.append(...sorted);
    if (focused && body.contains(focused)) focused.focus({ preventScroll: true });
  }

  table.tHead.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-sort]");
    if (!button) return;
    const head = button.closest("th");
    if (head.id === key) direction = direction === "ascending" ? "descending" : "ascending";
    else [key, direction] = [head.id, button.dataset.first];
    sort();
  });
  return sort;
}
