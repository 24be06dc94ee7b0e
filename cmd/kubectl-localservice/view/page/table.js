// The table: draws only what is on the screen. What comes from the cluster is only ever set as text.
"use strict";

const ROW = 34, AHEAD = 4; // pixels; rows and columns beyond the edges
const grid = $("grid"), canvas = $("canvas"), tip = $("tip"), details = $("details");

// make makes an element with properties and children, of which texts become text nodes.
function make(tag, props, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) name in e ? (e[name] = value) : e.setAttribute(name, value);
  e.append(...children);
  return e;
}

function shape(state) {
  const e = make("i", { className: "shape", ariaHidden: "true" });
  e.dataset.state = state;
  return e;
}

// drawn are the elements there are: by row, and in each by column. "" is the row of the headers.
const drawn = new Map();
let width = 0, headHeight = 0, names = 0; // of a column; of the headers; the width of the names of the rows
let version = 0; // of what the elements show: scrolling alone does not change it

function measure() {
  const { columns: cs, rows: rs } = shown;
  const room = $("details").hidden ? grid.clientWidth : document.querySelector("main").clientWidth;
  names = Math.min(room < 500 ? 130 : 320, Math.max(room < 500 ? 100 : 140, 30 + 8.4 * shown.longest));
  const before = width;
  width = Math.floor(Math.min(168, Math.max(46, (room - names - 2) / Math.max(1, cs.length))));
  const longest = cs.reduce((most, c) => Math.max(most, c.name.length), 0);
  const narrow = width < 92;
  // Names stand upright in two lines where columns are narrow, else break into lines: they are never cut.
  const lines = Math.max(1, ...cs.map((c) => linesOf(c.name, Math.floor((width - 20) / 8.4))));
  const problem = cs.some((c) => c.problem) ? 17 : 0;
  headHeight = narrow ? Math.round(Math.max(96, 26 + 7.8 * (longest > 22 ? Math.ceil(longest / 2) + 4 : longest))) :
    44 + 20 * lines + problem;
  if (before !== width) version++;
  grid.style.setProperty("--names", names + "px");
  grid.classList.toggle("narrow", narrow);
  place(canvas, { width: names + cs.length * width, height: headHeight + rs.length * ROW });
  grid.setAttribute("aria-rowcount", rs.length + 1);
  grid.setAttribute("aria-colcount", cs.length + 1);
}

// linesOf is how many lines a name takes that breaks at hyphens, with so many characters in each.
function linesOf(name, characters) {
  let lines = 1, used = 0;
  for (const word of name.split(/(?<=-)/)) {
    if (used && used + word.length > characters) lines++, used = 0;
    lines += Math.floor(Math.max(0, word.length - 1) / characters);
    used += word.length;
  }
  return lines;
}

function drawTable() {
  const { columns: cs, rows: rs } = shown;
  const range = (from, size, step, count) =>
    [Math.max(0, Math.floor(from / step) - AHEAD), Math.min(count, Math.ceil((from + size) / step) + AHEAD)];
  const [r0, r1] = range(grid.scrollTop, grid.clientHeight - headHeight, ROW, rs.length);
  const [c0, c1] = range(grid.scrollLeft, grid.clientWidth - names, width, cs.length);
  const keep = new Set([""]);
  for (let r = r0; r < r1; r++) keep.add(rs[r]);
  for (const [row, d] of drawn) if (!keep.has(row)) d.element.remove(), drawn.delete(row);
  drawRow("", 0, c0, c1);
  for (let r = r0; r < r1; r++) drawRow(rs[r], r + 1, c0, c1);
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
  const drawing = `${version} ${index} ${c0} ${c1}`;
  if (d?.drawing === drawing) return;
  if (!d) {
    const header = make("div", { className: "rowheader", role: index ? "rowheader" : "columnheader", ariaColIndex: 1 });
    header.row = row;
    const [label, value] = wordsOf(row);
    if (label) header.append(make("small", {}, label));
    header.append(index ? value : "Node");
    d = { element: make("div", { className: index ? "row" : "head", role: "row" }, header), cells: new Map() };
    drawn.set(row, d);
  }
  d.drawing = drawing;
  d.element.ariaRowIndex = index + 1;
  place(d.element, index ? { top: headHeight + (index - 1) * ROW } : { height: headHeight });
  d.element.classList.toggle("current", index > 0 && row === active.row);
  d.element.classList.toggle("group", isGroup(row));
  for (const [key, e] of d.cells) {
    const at = shown.columns.findIndex((c) => c.key === key);
    if (at < c0 || at >= c1) e.remove(), d.cells.delete(key);
  }
  for (let c = c0; c < c1; c++) {
    const column = shown.columns[c];
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
  if (!d.element.parentNode) canvas.append(d.element);
}

function fillHeader(e, column) {
  e.classList.toggle("current", column.key === active.column);
  const { counts } = column;
  const text = JSON.stringify([scope.namespace, counts, column.status, column.problem, answering(column)]);
  if (e.text === text) return;
  e.text = text;
  const meter = make("span", { className: "meter" });
  for (const state of ["Healthy", "Degraded", "Down", "Empty"]) {
    if (!counts[state]) continue;
    const part = make("i", {});
    part.dataset.state = state;
    part.style.flexGrow = counts[state];
    meter.append(part);
  }
  const small = make("small", {}, scope.namespace ? "" : column.namespace + " ", answering(column));
  if (column.problem) small.append(make("em", {}, " " + column.status));
  e.replaceChildren(make("b", {}, column.name), small, meter);
  e.ariaLabel = `${column.key}: ${answering(column)} answering. ${column.problem || column.message || ""}`;
}

function fillCell(e, column) {
  const cell = column.cells.get(e.row);
  const className = "cell" + (column.key === active.column && e.row === active.row ? " active" : "") +
    (cell && !passes(cell) ? " dim" : "");
  if (e.className !== className) e.className = className;
  if (e.cell === cell && e.filled) return;
  const looks = (cell) => `${cell.state} ${cell.ready}/${cell.total}`;
  const change = e.cell && cell && looks(e.cell) !== looks(cell);
  e.filled = true;
  e.cell = cell;
  e.ariaLabel = describe(column, e.row).join(": ");
  if (!cell) {
    e.textContent = "";
    delete e.dataset.state;
    return;
  }
  e.dataset.state = cell.state;
  e.textContent = cell.state === "Empty" ? "" : `${cell.ready}/${cell.total}`;
  if (change) e.animate?.([{ outline: "3px solid currentColor" }, { outline: "3px solid transparent" }],
    matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 1400);
}

// goTo makes a cell the active one, by index, and brings it onto the screen.
function goTo(r, c) {
  r = Math.max(0, Math.min(shown.rows.length - 1, r));
  c = Math.max(0, Math.min(shown.columns.length - 1, c));
  if (r < 0 || c < 0) return;
  active = { row: shown.rows[r], column: shown.columns[c].key };
  const [top, left] = [r * ROW, c * width];
  const [high, wide] = [grid.clientHeight - headHeight - ROW, grid.clientWidth - names - width];
  grid.scrollTop = Math.max(top - high, Math.min(top, grid.scrollTop));
  grid.scrollLeft = Math.max(left - wide, Math.min(left, grid.scrollLeft));
  version++;
  drawTable();
}

function move(r, c) {
  goTo(r, c);
  showTipOfActive();
}

let follows = false; // whether the tip is that of the active cell, and stays with it when the table scrolls
function showTipOfActive() {
  showTip(drawn.get(active.row)?.cells.get(active.column));
  follows = true;
}

function keyInTable(event) {
  const r = shown.rows.indexOf(active.row), c = shown.columns.findIndex((x) => x.key === active.column);
  const page = Math.max(1, Math.floor((grid.clientHeight - headHeight) / ROW) - 1), end = 1e9;
  const all = event.ctrlKey || event.metaKey;
  const steps = { ArrowUp: [r - 1, c], ArrowDown: [r + 1, c], ArrowLeft: [r, c - 1], ArrowRight: [r, c + 1],
    PageUp: [r - page, c], PageDown: [r + page, c], Home: [all ? 0 : r, 0], End: [all ? end : r, end] };
  if (event.key in steps) move(...steps[event.key]);
  else if ((event.key === "Enter" || event.key === " ") && columns.has(active.column)) showDetails({ ...active });
  else return;
  event.preventDefault();
}

grid.addEventListener("keydown", keyInTable);
grid.addEventListener("click", (event) => {
  const e = event.target.closest(".cell, .columnheader, .rowheader");
  if (!e || (!e.column && !e.row)) return;
  active = { row: e.row || active.row, column: e.column || active.column };
  version++;
  drawTable();
  if (!e.column || !e.row || e.cell) showDetails({ column: e.column ?? "", row: e.row ?? "" });
});
grid.addEventListener("pointerover", (event) => {
  follows = false;
  showTip(event.target.closest(".cell, .columnheader"));
});
for (const type of ["pointerleave", "blur"]) grid.addEventListener(type, () => (tip.hidden = true));
grid.addEventListener("scroll", () => {
  if (follows && !tip.hidden) showTipOfActive();
  else tip.hidden = true;
  schedule(false);
});
