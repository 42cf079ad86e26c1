// Tables that are sorted by the heads of their columns.
document.addEventListener("click", event => {
  const head = event.target.closest("table.sortable th");
  if (!head || !event.target.closest("button")) return;
  const table = head.closest("table"), body = table.tBodies[0], at = head.cellIndex;
  const down = head.getAttribute("aria-sort") === "ascending";
  table.querySelectorAll("th[aria-sort]").forEach(each => each.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const text = row => row.cells[at]?.textContent ?? "";
  const isNumber = head.classList.contains("number");
  const compare = (one, other) => isNumber
    ? (parseFloat(text(one).replaceAll(",", "")) || 0) - (parseFloat(text(other).replaceAll(",", "")) || 0)
    : text(one).localeCompare(text(other), undefined, {numeric: true});
  const rows = [...body.rows].sort(compare);
  body.append(...(down ? rows.reverse() : rows));
});
