// The page of a run: keys, find, copy, line numbers, the zoom of the time line. What is new keeps what is open.
document.documentElement.classList.add("with-scripts");
const one = selector => document.querySelector(selector);
// Not `checkVisibility` or places: a browser would render all that is far away.
const entries = () => [...document.querySelectorAll(".entry")].filter(each => !each.closest("details:not([open])"));
function element(id) {  // Also one in what is packed.
  for (const part of document.getElementById(id) ? [] : document.querySelectorAll(".packed")) {
    if (part.textContent.includes(`id="${id}"`)) unpack(part);
    if (document.getElementById(id)) break;
  }
  return document.getElementById(id);
}

function opened(element) {  // Open all that an element is in.
  for (let each = element?.closest("details"); each; each = each.parentElement.closest("details")) each.open = true;
  return element;
}
function follow() {
  const target = location.hash.length > 1 && element(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  if (target.matches("details")) target.open = true;
  opened(target).scrollIntoView({block: "start", behavior: "instant"});
  if (target.matches(".entry")) target.focus({preventScroll: true});
  if (innerWidth < 1000) one(".outline").open = false;
}
addEventListener("hashchange", follow);
if (innerWidth >= 1000) one(".outline").open = true;

// Entries
function step(by) {
  const here = document.activeElement.closest(".entry"), parts = [...document.querySelectorAll(".turn > .part")];
  const seen = parts.findIndex(each => each.getBoundingClientRect().bottom > 60);
  const part = here?.closest(".part") ?? parts.at(seen), place = parts.indexOf(part);
  if (!part) return;
  unpack(part);
  let all = entries(), next = all.indexOf(here) + by;
  if (here && all[next]?.closest(".part") !== part && parts[place + by]) {
    unpack(parts[place + by]);
    all = entries();
    next = all.indexOf(here) + by;
  }
  if (!all.includes(here)) {
    next = all.findIndex(each => part.contains(each) && each.getBoundingClientRect().top > 60);
    if (next < 0) next = all.findLastIndex(each => part.contains(each)) + 1;
    if (by < 0) next -= 1;
  }
  const target = all[Math.max(0, Math.min(all.length - 1, next))];
  target?.focus({preventScroll: true});
  target?.scrollIntoView({block: "start"});
}
let numbered = false;
function number() {
  document.documentElement.classList.toggle("numbered", numbered);
  one("[data-numbers]")?.setAttribute("aria-pressed", numbered);
  if (!numbered) return;
  for (const each of document.querySelectorAll(".code-box > pre:not([data-lines])")) {
    const lines = each.textContent.replace(/\n$/, "").split("\n").length;
    each.dataset.lines = Array.from({length: lines}, (_, at) => at + 1).join("\n");
  }
}

// Find
let found = [], current = -1;
const marks = CSS.highlights ? new Highlight() : null;
if (marks) CSS.highlights.set("found", marks);
function ranges(entry, words) {
  const walker = document.createTreeWalker(entry, NodeFilter.SHOW_TEXT), all = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = node.data.toLowerCase();
    for (let at = text.indexOf(words); at >= 0; at = text.indexOf(words, at + words.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + words.length);
      all.push(range);
    }
  }
  return all;
}
const known = new WeakMap(), signs = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&#x27;": "'", "&nbsp;": "\xa0", "&amp;": "&"};
function textsOf(part) {  // Ids and texts of what can be found; what is in another entry is its own.
  if (!part.matches(".packed")) return [...part.querySelectorAll(".entry, .request")].map(each => [each.id,
    [...each.querySelectorAll(".entry")].reduce((text, inner) => text.replace(inner.textContent, ""), each.textContent).toLowerCase()]);
  if (!known.has(part)) {
    const pieces = part.textContent.split(/<(?:article|details class="request") id="([^"]*)"/).slice(1), all = [];
    for (let at = 0; at < pieces.length; at += 2) {
      const text = `<${pieces[at + 1]}`.replace(/<(?:"[^"]*"|[^>"])*>/g, "").replace(/&[a-z0-9#]+;/g, sign => signs[sign] ?? sign);
      all.push([pieces[at], text.toLowerCase()]);
    }
    known.set(part, all);
  }
  return known.get(part);
}
function find() {
  const words = one("#find").value.toLowerCase(), head = ["head", one("#head").textContent.toLowerCase()];
  const all = words ? [head, ...[...document.querySelectorAll(".turn > .part, .requests")].flatMap(textsOf)] : [];
  found = all.filter(([, text]) => text.includes(words)).map(([id]) => id);
  current = -1;
  if (found.length) show(1); else { marks?.clear(); one(".find output").value = words ? "nothing found" : ""; }
}
function show(by) {
  if (!found.length) return;
  current = (current + by + found.length) % found.length;
  const target = element(found[current]), words = one("#find").value.toLowerCase(), places = ranges(target, words);
  if (target.matches("details")) target.open = true;
  places.forEach(each => opened(each.startContainer.parentElement));
  opened(target);
  marks?.clear();
  places.forEach(each => marks?.add(each));
  (places[0]?.startContainer.parentElement ?? target).scrollIntoView({block: "center", behavior: "instant"});
  one(".find output").value = `${current + 1} of ${found.length}`;
}
function closeFind() {
  one(".find").hidden = true;
  marks?.clear();
  if (found[current]) element(found[current]).focus({preventScroll: true});
}
one("#find").addEventListener("input", find);
one(".find").addEventListener("submit", event => { event.preventDefault(); show(1); });
one(".find").addEventListener("keydown", event => {
  if (event.key === "Escape") closeFind();
  if (event.key === "Enter" && event.shiftKey) { event.preventDefault(); show(-1); }
});

// The runs before and after this one in the list that led here
const runs = JSON.parse(globalThis.sessionStorage?.getItem("runs") ?? "[]"), place = runs.indexOf(location.href.replace(/#.*/, ""));
const beside = by => place >= 0 && runs[place + by];
function neighbours() {
  const nav = document.createElement("nav");
  nav.className = "neighbours";
  nav.setAttribute("aria-label", "The list of runs");
  for (const [by, sign, name] of [[-1, "\u2039", "previous run"], [1, "\u203a", "next run"]]) {
    const link = document.createElement("a");
    if (beside(by)) link.href = beside(by);
    link.setAttribute("role", "link");
    link.setAttribute("aria-label", name);
    if (!beside(by)) link.setAttribute("aria-disabled", true);
    link.textContent = sign;
    nav.append(link);
  }
  nav.children[0].after(` ${place + 1} of ${runs.length} `);
  one(".bar").append(nav);
}
if (place >= 0) neighbours();

// Keys and buttons
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  const keys = {
    j: () => step(1),
    k: () => step(-1),
    h: () => { if (beside(-1)) location.assign(beside(-1)); },
    l: () => { if (beside(1)) location.assign(beside(1)); },
    n: () => { numbered = !numbered; number(); },
    o: () => {
      const inner = [...(document.activeElement.closest(".entry")?.querySelectorAll("details") ?? [])];
      const open = inner.some(each => !each.open);
      inner.forEach(each => { each.open = open; });
    },
    "/": () => { one(".find").hidden = false; one("#find").focus(); one("#find").select(); },
    "?": () => one("#keys").showModal(),
  };
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); return; }
  if (event.target.id !== "time-window") return;
  const view = event.target, moves = {"+": () => zoom(2), "=": () => zoom(2), "-": () => zoom(.5), ArrowLeft: () => view.scrollBy(-80, 0), ArrowRight: () => view.scrollBy(80, 0)};
  if (moves[event.key]) { event.preventDefault(); moves[event.key](); }
});
document.addEventListener("click", async event => {
  const link = event.target.closest('a[href^="#"]');
  if (link) element(decodeURIComponent(link.getAttribute("href").slice(1)));
  const button = event.target.closest("button");
  if (!button) return;
  if (button.matches(".copy")) {
    await navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } else if (button.dataset.zoom) zoom({in: 2, out: .5, all: 0}[button.dataset.zoom]);
  else if (button.dataset.find === "before") show(-1);
  else if (button.dataset.find === "close") closeFind();
  else if ("keys" in button.dataset) one("#keys").showModal();
  else if ("numbers" in button.dataset) { numbered = !numbered; number(); }
});

// The time line
let scale = 1;
function zoom(by, at = .5) {
  const view = one("#time-window");
  const place = (view.scrollLeft + at * view.clientWidth) / view.scrollWidth;
  scale = by ? Math.max(1, Math.min(512, scale * by)) : 1;
  draw();
  view.scrollLeft = place * view.scrollWidth - at * view.clientWidth;
  drawRest();
}
const svg = (name, facts, ...inner) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(facts)) made.setAttribute(key, value);
  made.append(...inner);
  return made;
};
function drawRest() {  // Of the steps that are too many to be drawn at once, the longest that are in view.
  const view = one("#time-window"), line = one("#time-line"), whole = +line.dataset.seconds, group = svg("g", {class: "rest"});
  const from = view.scrollLeft / view.scrollWidth * whole, to = from + view.clientWidth / view.scrollWidth * whole;
  const names = [...document.querySelectorAll(".lanes .names li")].map(each => each.textContent);
  const rest = scale > 1 ? JSON.parse(one("#time-rest")?.textContent ?? "[]") : [];
  for (const [at, seconds, kind, lane, step] of rest.filter(([at, seconds]) => at < to && at + seconds > from).slice(0, 1000)) {
    const what = `${names[lane]}: ${kind}, ${seconds.toFixed(2)} s, after ${at.toFixed(1)} s`;
    const rect = svg("rect", {class: `bar-${kind}`, x: `${at / whole * 100}%`, y: lane * 26 + 4, height: 18});
    rect.style.width = `max(3px, ${seconds / whole * 100}%)`;
    group.append(svg("a", {href: `#step-${step}`, tabindex: -1, "aria-label": what}, svg("title", {}, what), rect));
  }
  line.querySelector(".rest")?.remove();
  line.querySelector(".ticks").before(group);
}
one("#time-window")?.addEventListener("scrollend", drawRest);
function draw() {
  const line = one("#time-line");
  if (!line || scale === 1 && !line.style.width) return;
  line.style.width = `${scale * 100}%`;
  const seconds = +line.dataset.seconds, width = scale * one("#time-window").clientWidth, rough = seconds / width * 80;
  const power = 10 ** Math.floor(Math.log10(rough));  // 80 pixels have room for a label.
  const between = power * [1, 2, 5, 10].find(each => each * power >= rough), ticks = line.querySelector(".ticks");
  const y = line.getAttribute("height") - 5, digits = Math.max(0, -Math.floor(Math.log10(between)));
  ticks.replaceChildren(...Array.from({length: Math.min(3000, Math.ceil(seconds * (1 - 60 / width) / between))}, (_, at) => {
    const text = document.createElementNS("http://www.w3.org/2000/svg", "text");
    text.setAttribute("x", `${at * between / seconds * 100}%`);
    text.setAttribute("dx", 4);
    text.setAttribute("y", y);
    text.textContent = `${(at * between).toFixed(digits)} s`;
    return text;
  }));
}
document.addEventListener("wheel", event => {
  const view = event.target.closest?.("#time-window");
  if (!view || !(event.ctrlKey || event.shiftKey)) return;  // A plain wheel scrolls the page.
  event.preventDefault();
  zoom(event.deltaY + event.deltaX < 0 ? 1.5 : 1 / 1.5, (event.clientX - view.getBoundingClientRect().left) / view.clientWidth);
}, {passive: false});
let drag = null;
document.addEventListener("pointerdown", event => {
  const view = event.target.closest?.("#time-window");
  if (view && event.pointerType === "mouse") drag = {view, x: event.clientX, from: view.scrollLeft};
});
document.addEventListener("pointermove", event => { if (drag) drag.view.scrollLeft = drag.from - event.clientX + drag.x; });
document.addEventListener("pointerup", () => { drag = null; });
document.addEventListener("dragstart", event => { if (event.target.closest?.("#time-window")) event.preventDefault(); });

// Of a very long run, what is far away is text (`packed` in frame.py): as elements it needs twenty times as much.
function unpack(part) {
  if (!part.matches(".packed")) return;
  part.innerHTML = part.textContent;  // It has a <noscript>, in which all is text.
  part.classList.remove("packed");
  part.style.minHeight = "";
  near.unobserve(part);
  near.observe(part);  // Which tells whether it is near.
  globalThis.htmx?.process(part);
  if (numbered) number();
}
function pack(part, height) {
  const selected = getSelection();
  if (part.matches(".packed") || part.contains(document.activeElement) || !selected.isCollapsed && selected.containsNode(part, true)) return;
  part.style.minHeight = `${height}px`;
  for (const each of part.querySelectorAll("pre")) if (each.textContent.startsWith("\n")) each.prepend("\n");  // HTML drops one.
  const text = document.createElement("noscript");
  text.textContent = part.innerHTML;
  part.replaceChildren(text);
  part.classList.add("packed");
  known.delete(part);
}
const near = new IntersectionObserver(changes => {
  for (const {target, isIntersecting, boundingClientRect} of changes)
    if (isIntersecting) unpack(target); else pack(target, boundingClientRect.height);
}, {rootMargin: "3000px"});
const watchParts = () => document.querySelectorAll(".vast :is(.turn > .part, .requests)").forEach(each => near.observe(each));
watchParts();
let unlinked = [];  // Chromium looks for the places of all links anew on each page that it prints.
addEventListener("beforeprint", () => {
  document.querySelectorAll(".packed").forEach(unpack);
  near.disconnect();
  unlinked = Array.from(document.querySelectorAll('.long a[href^="#"]'), link => [link, link.getAttribute("href")]);
  for (const [link] of unlinked) link.removeAttribute("href");
});
addEventListener("afterprint", () => {
  for (const [link, place] of unlinked) link.setAttribute("href", place);
  watchParts();
});
follow();

// What is new takes its place; what is the same is left alone, with what was opened, sorted or asked for in it.
if (globalThis.Idiomorph) {
  Idiomorph.defaults.callbacks.beforeNodeMorphed = (old, next) =>
    !(old.dataset?.v && old.dataset.v === next.dataset?.v) && !old.classList?.contains("conversation");
  document.addEventListener("htmx:configRequest", event => {
    const parts = event.target.id === "run" ? document.querySelectorAll("#run :is(div, ol)[data-v]") : [];
    if (parts.length) event.detail.headers["Coderoom-Have"] = Array.from(parts, each => each.dataset.v).join();
  });
  document.addEventListener("htmx:afterSwap", () => { number(); draw(); watchParts(); });
}
