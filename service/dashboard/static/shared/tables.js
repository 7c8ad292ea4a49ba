// Tables behind charts.

/** Writes a figure's table into a <table>. */
export function tabulate(table, { columns, rows }) {
  const head = document.createElement("tr");
  head.append(
    ...columns.map((name, index) => {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.className = index ? "num" : "";
      cell.textContent = name;
      return cell;
    }),
  );
  const lines = rows.map((row) => {
    const line = document.createElement("tr");
    line.append(
      ...row.map((value, index) => {
        const cell = document.createElement(index ? "td" : "th");
        if (!index) cell.scope = "row";
        cell.className = index ? "num" : "";
        cell.textContent = value;
        return cell;
      }),
    );
    return line;
  });
  const body = document.createElement("tbody");
  body.append(...lines);
  const header = document.createElement("thead");
  header.append(head);
  table.replaceChildren(header, body);
  table.closest("details").hidden = !rows.length;
}
