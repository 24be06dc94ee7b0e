// Draws what is on the screen of the matrix that model.js has. What comes from the cluster is only ever set as text.
"use strict";

const token = location.hash.slice(1);
const ROW = 34, AHEAD = 3; // pixels; rows and columns beyond the edges
const grid = $("grid"), canvas = $("canvas"), tip = $("tip"), details = $("details");
let lost = ""; // why nothing is heard

// make makes an element with properties and children, of which texts become text nodes.
function make(tag, props, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) name in e ? (e[name] = value) : e.setAttribute(name, value);
  e.append(...children);
  return e;
}

function icon(state) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", "#" + state);
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  svg.append(use);
  return svg;
}

let scheduled = false, axesChanged = false;
function schedule(axes) {
  axesChanged ||= axes;
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    if (axesChanged) filter();
    axesChanged = false;
    draw();
    drawAround();
  });
}

// drawn are the elements there are: by row, and in each by column. "" is the row of the headers.
const drawn = new Map();
let width = 0, headHeight = 0, names = 0; // of a column; of the headers; the width of the names of the rows

function draw() {
  const { columns: cs, rows: rs } = shown;
  names = Math.min(320, Math.max(140, 24 + 8 * shown.longest));
  grid.style.setProperty("--names", names + "px");
  width = Math.floor(Math.min(168, Math.max(38, (grid.clientWidth - names - 2) / Math.max(1, cs.length))));
  const narrow = width < 92;
  headHeight = narrow ? 132 : 68;
  grid.classList.toggle("narrow", narrow);
  place(canvas, { width: names + cs.length * width, height: headHeight + rs.length * ROW });
  grid.setAttribute("aria-rowcount", rs.length + 1);
  grid.setAttribute("aria-colcount", cs.length + 1);
  const range = (from, size, step, count) =>
    [Math.max(0, Math.floor(from / step) - AHEAD), Math.min(count, Math.ceil((from + size) / step) + AHEAD)];
  const [r0, r1] = range(grid.scrollTop, grid.clientHeight - headHeight, ROW, rs.length);
  const [c0, c1] = range(grid.scrollLeft, grid.clientWidth - names, width, cs.length);
  const keep = new Set([""]);
  drawRow("", 0, c0, c1);
  for (let r = r0; r < r1; r++) {
    keep.add(rs[r]);
    drawRow(rs[r], r + 1, c0, c1);
  }
  for (const [row, d] of drawn) if (!keep.has(row)) d.element.remove(), drawn.delete(row);
  grid.setAttribute("aria-activedescendant", drawn.get(active.row)?.cells.get(active.column)?.id ?? "");
}

function place(element, styles) {
  for (const [name, pixels] of Object.entries(styles)) {
    if (element["at" + name] === pixels) continue;
    element["at" + name] = pixels;
    element.style[name] = pixels + "px";
  }
}

let ids = 0;
function drawRow(row, index, c0, c1) {
  let d = drawn.get(row);
  if (!d) {
    const header = make("div", { className: "rowheader", role: index ? "rowheader" : "columnheader" });
    header.ariaColIndex = 1;
    const [label, value] = wordsOf(row);
    if (label) header.append(make("small", {}, label));
    header.append(index ? value : "Node");
    d = { element: make("div", { className: index ? "row" : "head", role: "row" }, header), cells: new Map() };
    drawn.set(row, d);
    canvas.append(d.element);
  }
  d.element.ariaRowIndex = index + 1;
  place(d.element, index ? { top: headHeight + (index - 1) * ROW } : { height: headHeight });
  d.element.classList.toggle("current", index > 0 && row === active.row);
  const keep = new Set();
  for (let c = c0; c < c1; c++) {
    const column = shown.columns[c];
    keep.add(column.key);
    let e = d.cells.get(column.key);
    if (!e) {
      const [className, role] = index ? ["cell", "gridcell"] : ["columnheader", "columnheader"];
      e = make("div", { id: "c" + ids++, className, role });
      Object.assign(e, { column: column.key, row });
      d.cells.set(column.key, e);
      d.element.append(e);
    }
    e.ariaColIndex = c + 2;
    place(e, { left: names + c * width, width });
    index ? fillCell(e, column) : fillHeader(e, column);
  }
  for (const [key, e] of d.cells) if (!keep.has(key)) e.remove(), d.cells.delete(key);
}

function fillHeader(e, column) {
  e.classList.toggle("current", column.key === active.column);
  const { counts } = column;
  const all = column.cells.size, some = all - counts.Empty;
  const about = `${counts.Ready}/${some} ready`;
  const text = JSON.stringify([scope.namespace, counts, column.message]);
  if (e.text === text) return;
  e.text = text;
  const meter = make("span", { className: "meter" });
  for (const state of STATES) {
    if (!counts[state]) continue;
    const part = make("i", {});
    part.dataset.state = state;
    part.style.flexGrow = counts[state];
    meter.append(part);
  }
  const small = make("small", {}, scope.namespace ? about : column.namespace);
  e.replaceChildren(make("b", {}, column.name), small, meter);
  e.ariaLabel = `${column.key}: ${about}. ${column.message ?? ""}`;
}

function fillCell(e, column) {
  const cell = column.cells.get(e.row);
  e.classList.toggle("active", column.key === active.column && e.row === active.row);
  e.classList.toggle("dim", wanted.size > 0 && !wanted.has(cell?.state));
  if (e.cell === cell && e.childNodes.length > 0 === !!cell) return;
  const looks = (cell) => `${cell.state} ${cell.ready}/${cell.total}`;
  const change = e.cell && cell && looks(e.cell) !== looks(cell);
  e.cell = cell;
  e.ariaLabel = describe(column, e.row).join(": ");
  e.replaceChildren();
  if (!cell) return;
  const chip = make("div", { className: change ? "chip changed" : "chip" }, icon(cell.state));
  chip.dataset.state = cell.state;
  if (cell.state !== "Empty") chip.append(make("span", {}, `${cell.ready}/${cell.total}`));
  e.append(chip);
}

// describe is a title and what there is to say of a cell.
function describe(column, row) {
  const cell = column.cells.get(row);
  const title = `${column.name}, ${row}`;
  if (!cell) return [title, "no name here"];
  return [title, cell.message || `${cell.ready} of ${cell.total} endpoints ready`, cell.state];
}

// drawAround draws all but the grid.
function drawAround() {
  $("scope").textContent = [scope.context, scope.namespace ? "namespace " + scope.namespace : "all namespaces",
    scope.name, scope.notice].filter(Boolean).join(" · ");
  const number = (n) => n.toLocaleString("en");
  const of = (some, all, what) => (some === all ? "" : number(some) + " of ") + number(all) + what;
  $("count").textContent = [
    of(shown.rows.length, rows.size, [...rows.keys()].some(isGroup) ? " nodes and groups" : " nodes"),
    of(shown.columns.length, columns.size, columns.size === 1 ? " LocalService" : " LocalServices"),
  ].join(" · ");
  for (const button of $("states").children) {
    let sum = 0;
    for (const c of columns.values()) sum += c.counts[button.value];
    button.lastChild.textContent = number(sum);
  }
  const nothing = lost && columns.size === 0 ? "" : !watching.loaded ? "Reading the cluster …" :
    columns.size === 0 ? "There is no LocalService here." :
    shown.rows.length === 0 || shown.columns.length === 0 ? "Nothing matches the filters." : "";
  $("nothing").textContent = nothing;
  $("nothing").hidden = !nothing;
  const problems = lost ? [lost] : watching.problems;
  $("problems").hidden = problems.length === 0;
  if ($("problems").textContent !== problems.join("")) {
    $("problems").replaceChildren(...problems.map((p) => make("li", {}, p)));
  }
  const live = lost ? ["lost", "Not connected"] : problems.length ? ["lost", "Out of date"] :
    watching.loaded ? ["yes", "Live"] : ["no", "Connecting"];
  if ($("live").textContent !== live[1]) [$("live").dataset.live, $("live").textContent] = live;
}

// The details of a cell, and the tip.

async function showDetails(cell) {
  selected = cell;
  const column = columns.get(cell.column);
  const answer = await fetch("cell?" + new URLSearchParams({ token, ...cell })).catch(() => null);
  if (selected !== cell || !column) return;
  const node = answer?.ok ? await answer.json() : null;
  const [title, message, state] = describe(column, cell.row);
  const h2 = make("h2", {}, state ? icon(state) : "", title);
  const close = make("button", { ariaLabel: "Close", onclick: closeDetails }, "×");
  const list = make("dl", {});
  const add = (name, items) => list.append(make("dt", {}, name),
    make("dd", {}, items.length ? make("ul", {}, ...items.map((i) => make("li", {}, ...[i].flat()))) : "none"));
  if (node) {
    if (node.reason) add("Reason", [node.reason]);
    if (node.dnsName) add("DNS name", [node.dnsName]);
    add("Pods", node.pods.map((p) => [p.name, make("small", {}, " " + (p.ready ? "ready" : p.reason || "not ready"))]));
    add("Ready addresses", node.addresses);
  }
  const command = `kubectl localservice nodes ${column.name} -n ${column.namespace}`;
  list.append(make("dt", {}, "The same in a terminal"), make("dd", {}, make("code", {}, command)));
  if (column.message) list.append(make("dt", {}, "LocalService"), make("dd", {}, column.message));
  h2.dataset.state = state ?? "";
  const text = make("p", { className: "message" }, message);
  text.dataset.state = state ?? "";
  details.replaceChildren(close, h2, text, list);
  if (details.hidden) {
    details.hidden = false;
    tip.hidden = true; // The grid is narrower now.
    schedule(false);
  }
}

function closeDetails() {
  selected = null;
  details.hidden = true;
  grid.focus();
  schedule(false);
}

function showTip(e) {
  const column = columns.get(e?.column);
  if (!column) return void (tip.hidden = true);
  const [title, text] = e.row ? describe(column, e.row) :
    [column.key, [column.mode, column.message].filter(Boolean).join(". ")];
  tip.replaceChildren(make("b", {}, title), text);
  tip.hidden = false;
  const box = e.getBoundingClientRect(), own = tip.getBoundingClientRect();
  const below = box.bottom + 6 + own.height < innerHeight;
  tip.style.left = Math.max(8, Math.min(box.left, innerWidth - own.width - 8)) + "px";
  tip.style.top = (below ? box.bottom + 6 : box.top - own.height - 6) + "px";
}

// move goes to a cell, by index.
function move(r, c) {
  r = Math.max(0, Math.min(shown.rows.length - 1, r));
  c = Math.max(0, Math.min(shown.columns.length - 1, c));
  if (r < 0 || c < 0) return;
  active = { row: shown.rows[r], column: shown.columns[c].key };
  const [top, left] = [r * ROW, c * width];
  const [high, wide] = [grid.clientHeight - headHeight - ROW, grid.clientWidth - names - width];
  grid.scrollTop = Math.max(top - high, Math.min(top, grid.scrollTop));
  grid.scrollLeft = Math.max(left - wide, Math.min(left, grid.scrollLeft));
  draw();
  showTip(drawn.get(active.row)?.cells.get(active.column));
}

grid.addEventListener("keydown", (event) => {
  const r = shown.rows.indexOf(active.row), c = shown.columns.findIndex((x) => x.key === active.column);
  const page = Math.max(1, Math.floor((grid.clientHeight - headHeight) / ROW) - 1), end = 1e9;
  const all = event.ctrlKey || event.metaKey;
  const steps = { ArrowUp: [r - 1, c], ArrowDown: [r + 1, c], ArrowLeft: [r, c - 1], ArrowRight: [r, c + 1],
    PageUp: [r - page, c], PageDown: [r + page, c], Home: [all ? 0 : r, 0], End: [all ? end : r, end] };
  if (event.key in steps) move(...steps[event.key]);
  else if ((event.key === "Enter" || event.key === " ") && columns.has(active.column)) showDetails({ ...active });
  else return;
  event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target.tagName === "INPUT") grid.focus();
  else if (event.key === "Escape") selected ? closeDetails() : (tip.hidden = true);
  else if (event.key === "/" && event.target.tagName !== "INPUT") $("by-name").focus(), event.preventDefault();
});
grid.addEventListener("click", (event) => {
  const e = event.target.closest(".cell");
  if (!e) return;
  active = { row: e.row, column: e.column };
  draw();
  if (e.cell) showDetails({ ...active });
});
grid.addEventListener("pointerover", (event) => showTip(event.target.closest(".cell, .columnheader")));
grid.addEventListener("pointerleave", () => (tip.hidden = true));
grid.addEventListener("blur", () => (tip.hidden = true));
grid.addEventListener("scroll", () => ((tip.hidden = true), schedule(false)));
new ResizeObserver(() => schedule(false)).observe(grid);
for (const id of ["by-name", "by-node"]) $(id).addEventListener("input", () => schedule(true));
for (const state of STATES) {
  const button = make("button", { type: "button", value: state, ariaPressed: "false" }, icon(state), state,
    make("b", {}, "0"));
  button.dataset.state = state;
  button.addEventListener("click", () => {
    wanted.delete(state) || wanted.add(state);
    button.ariaPressed = String(wanted.has(state));
    schedule(true);
  });
  $("states").append(button);
}

const events = new EventSource("events?" + new URLSearchParams({ token }));
events.onopen = () => ((lost = ""), schedule(false));
events.onmessage = (event) => apply(JSON.parse(event.data));
events.onerror = () => {
  lost = events.readyState === EventSource.CLOSED ?
    "Open the address that kubectl localservice view has printed, all of it: an old one, or a part, shows nothing." :
    "Not connected to kubectl localservice view, trying again: has it ended? What is shown may be out of date.";
  schedule(false);
};
