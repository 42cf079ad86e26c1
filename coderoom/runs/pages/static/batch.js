// All runs of a batch: a grid with a cell for each, and a table that is searched, filtered, sorted and saved.
const data = JSON.parse(document.getElementById("data").textContent);
const names = ["id", "repeat", "status", "seconds", "tokens", "cost", "checked", "fooled", "outcome", "why", "run", "paged", "reason", "tags"];
const runs = data.rows.map(row => Object.fromEntries(names.map((name, at) => [name, row[at]])));
const numeric = new Intl.Collator(undefined, {numeric: true});
const byItem = (a, b) => numeric.compare(a.id, b.id) || a.repeat - b.repeat;
runs.sort(byItem);
for (const run of runs) {
  run.name = run.repeat > 1 ? `${run.id}, ${run.repeat}` : run.id;
  run.link = run.paged ? {href: `pages/${run.run}.html`} : {};
  run.text = `${run.name}\n${run.why}\n${run.outcome}\n${run.tags.map(at => data.tags[at]).join("\n")}`.toLowerCase();
}

function made(tag, facts = {}, ...inner) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(facts)) element.setAttribute(name, value);
  element.append(...inner);
  return element;
}

// --- The table ---

const form = document.getElementById("filters"), rows = document.querySelector("#table tbody");
const pages = document.getElementById("pages"), found = document.getElementById("found");
const perPage = 100;
const orders = {
  item: byItem,
  status: (a, b) => b.status - a.status,
  time: (a, b) => a.seconds - b.seconds,
  tokens: (a, b) => a.tokens - b.tokens,
  cost: (a, b) => (a.cost ?? 0) - (b.cost ?? 0),
};
let sort = "item", page = 0, shown = runs;

function dollars(cost) {
  return cost < 0.0001 ? "less than $0.0001" : `$${cost.toFixed(cost >= 1 ? 2 : 4)}`;
}

function rowOf(run) {
  const [status, style] = data.statuses[run.status];
  const cells = {
    item: made("a", {...run.link, dir: "auto"}, run.name),
    status: made("span", {class: `badge ${style}`}, status),
    "time number": `${run.seconds.toFixed(1)} s`,
    "tokens number": run.tokens ? run.tokens.toLocaleString("en") : "",
    "cost number": run.cost ? dollars(run.cost) : "",
    checked: run.checked + (run.fooled ? " (can be fooled)" : ""),
    outcome: run.outcome,
    why: made("span", {dir: "auto"}, run.why),
  };
  return made("tr", {}, ...Object.entries(cells).map(([name, cell]) => made("td", {class: name}, cell)));
}

function show() {
  const last = Math.max(0, Math.ceil(shown.length / perPage) - 1);
  page = Math.min(Math.max(page, 0), last);
  const begin = page * perPage, part = shown.slice(begin, begin + perPage);
  rows.replaceChildren(...part.map(rowOf));
  const place = part.length < shown.length ? `${begin + 1} to ${begin + part.length} of ` : "";
  found.textContent = `${place}${shown.length.toLocaleString("en")} ${shown.length === 1 ? "run" : "runs"}`;
  pages.hidden = last === 0;
  for (const button of pages.children) button.disabled = page === (button.dataset.step < 0 ? 0 : last);
}

function select() {
  const words = form.q.value.toLowerCase().split(/\s+/).filter(Boolean);
  const [status, tag, reason] = ["status", "tag", "reason"].map(name => form.elements[name]?.value || "");
  shown = runs.filter(run => (
    (!status || data.statuses[run.status][0] === status) && (!reason || data.reasons[run.reason] === reason)
    && (!tag || run.tags.some(at => data.tags[at] === tag)) && words.every(word => run.text.includes(word))
  ));
  const order = orders[sort.replace("-", "")];
  shown.sort(sort.startsWith("-") ? (a, b) => order(b, a) : order);
  page = 0;
  show();
}

// What is asked for is in the address, so that links lead to it and it can be passed on.
function keep() {
  const asked = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  if (sort !== "item") asked.set("sort", sort);
  history.replaceState(null, "", `#${asked}`);
  select();
}

function take() {
  const asked = new URLSearchParams(location.hash.slice(1));
  for (const name of ["q", "status", "tag", "reason"]) {
    if (form.elements[name]) form.elements[name].value = asked.get(name) || "";
  }
  sort = (asked.get("sort") || "").replace("-", "") in orders ? asked.get("sort") : "item";
  mark();
  select();
}

const heads = [...rows.parentElement.querySelectorAll("thead th")].filter(head => head.classList[0] in orders);

function mark() {
  for (const head of heads) {
    const is = sort.replace("-", "") === head.classList[0];
    head.setAttribute("aria-sort", is ? (sort.startsWith("-") ? "descending" : "ascending") : "none");
  }
}

for (const head of heads) {
  const button = made("button", {type: "button"}, head.textContent);
  button.addEventListener("click", () => {
    sort = sort === head.classList[0] ? `-${sort}` : head.classList[0];
    mark();
    keep();
  });
  head.replaceChildren(button);
}
form.addEventListener("input", keep);
form.addEventListener("submit", event => event.preventDefault());
pages.addEventListener("click", event => {
  page += Number(event.target.dataset.step || 0);
  show();
});
addEventListener("hashchange", () => {
  take();
  document.getElementById("runs").scrollIntoView();
});
addEventListener("keydown", event => {
  if (event.key === "/" && !event.target.closest("input, select, textarea")) {
    event.preventDefault();
    form.q.focus();
  }
});

// The page of a run leads to the next one of the table.
const mostKept = 2000;
document.addEventListener("click", event => {
  const link = event.target.closest("#table a, #grid a");
  if (!link) return;
  const links = (link.closest("#grid") ? runs : shown).filter(run => run.paged).map(run => new URL(run.link.href, location).href);
  const begin = Math.max(0, links.indexOf(link.href) - mostKept / 2);
  sessionStorage.setItem("runs", JSON.stringify(links.slice(begin, begin + mostKept)));
});

// --- Saving what the table shows ---

const saved = ["id", "repeat", "status", "outcome", "checked_by", "can_be_fooled", "seconds", "tokens", "cost_usd", "why", "tags", "run"];

function factsOf(run) {
  const facts = [
    run.id, run.repeat, data.statuses[run.status][0], run.outcome, run.checked, Boolean(run.fooled), run.seconds, run.tokens,
    run.cost, run.why, run.tags.map(at => data.tags[at]), run.run,
  ];
  return Object.fromEntries(saved.map((name, at) => [name, facts[at]]));
}

// A spreadsheet takes a text that begins with one of these for a formula.
function csvCell(value) {
  const text = Array.isArray(value) ? value.join("; ") : String(value ?? "");
  const plain = typeof value !== "number" && /^[=+\-@\t]/.test(text) ? `'${text}` : text;
  return `"${plain.replaceAll('"', '""')}"`;
}

form.addEventListener("click", event => {
  const kind = event.target.dataset.save;
  if (!kind) return;
  const facts = shown.map(factsOf);
  const lines = [saved, ...facts.map(Object.values)].map(line => line.map(csvCell).join(","));
  const text = kind === "csv" ? lines.join("\r\n") : JSON.stringify(facts, null, 1);
  const address = URL.createObjectURL(new Blob([text], {type: kind === "csv" ? "text/csv" : "application/json"}));
  made("a", {href: address, download: `results.${kind}`}).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
});

form.hidden = false;
take();

// --- The grid: arrows go from cell to cell, so that it is one stop of the Tab key ---

const grid = document.getElementById("grid");
const mostCells = 20000, perPart = 200;

function cellOf(run) {
  const [status, style, sign] = data.statuses[run.status];
  const name = `${run.name}: ${status}`;
  return made("a", {role: run.paged ? "link" : "img", ...run.link, class: `cell ${style}`, title: name, "aria-label": name, tabindex: -1}, sign);
}

function fill() {
  if (!runs.length) return;
  const grouped = new Map();
  for (const run of runs.slice(0, mostCells)) grouped.set(run.id, [...(grouped.get(run.id) || []), run]);
  const items = [...grouped];
  const repeated = items.some(([, each]) => each.length > 1);
  grid.replaceChildren();
  grid.classList.toggle("repeated", repeated);
  let begin = 0;
  const next = () => {
    const part = items.slice(begin, begin + perPart).flatMap(([id, each]) => {
      const cells = each.map(cellOf);
      return repeated ? [made("div", {class: "item"}, made("span", {class: "of", title: id, dir: "auto"}, id), ...cells)] : cells;
    });
    grid.append(made("div", {class: "part"}, ...part));
    if (!begin) grid.querySelector(".cell").tabIndex = 0;
    begin += perPart;
    if (begin < items.length) setTimeout(next);
    else if (runs.length > mostCells) grid.append(`and ${(runs.length - mostCells).toLocaleString("en")} more`);
  };
  next();
}

grid.addEventListener("keydown", event => {
  const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
  if (!step) return;
  event.preventDefault();
  const cells = [...grid.querySelectorAll(".cell")], to = cells[cells.indexOf(document.activeElement) + step];
  if (!to) return;
  document.activeElement.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
});
requestAnimationFrame(() => setTimeout(fill));
