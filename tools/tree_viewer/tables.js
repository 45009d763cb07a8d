// Tables that can be sorted: the headings become buttons.
for (const table of document.querySelectorAll("table[data-sorts]")) {
  const body = table.tBodies[0];
  const key = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  };
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") === "descending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...body.rows].map((row) => [key(row, column), row]);
      const compare = ([a], [b]) => (typeof a === "number" ? a - b : a.localeCompare(b));
      body.append(...rows.sort((a, b) => (up ? 1 : -1) * compare(a, b)).map(([, row]) => row));
    });
  });
}
