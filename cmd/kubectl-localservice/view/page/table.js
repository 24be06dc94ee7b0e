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

// drawn are the elements there are: by the key of their line, and in each by that of their column on the screen. "" is
// the line of the headers.
const drawn = new Map();
let width = 0, headHeight = 0, names = 0; // of a column; of the headers; the width of the names of the lines
let version = 0; // of what the elements show: scrolling alone does not change it

// cellAt is what is where a line and a column of the screen meet: the key of a LocalService, and a row.
const cellAt = (down, across) => (shown.flipped ? { column: down, row: across } : { column: across, row: down });
// placeOfCell is cellAt the other way round.
const placeOfCell = ({ column, row }) => (shown.flipped ? [column, row] : [row, column]);

// nameOf is what the header of a line or column says, and what is beside it.
function nameOf(key, isColumn) {
  const column = isColumn && columns.get(key);
  if (!column) return wordsOf(key).toReversed();
  return [column.name, (scope.namespace ? "" : column.namespace + " ") + answering(column) +
    (column.problem ? " " + column.status : "")];
}

const longest = (keys, isColumn, count) => keys.reduce((most, key) => Math.max(most, count(nameOf(key, isColumn))), 0);

function measure() {
  const { across, down, flipped } = shown;
  const room = $("details").hidden ? grid.clientWidth : document.querySelector("main").clientWidth;
  const needs = 30 + 8.4 * longest(down, flipped, (texts) => texts.join(" ").length);
  names = Math.min(room >= 500 ? 420 : flipped ? 170 : 130, Math.max(room < 500 ? 100 : 140, needs));
  const before = width;
  width = Math.floor(Math.min(flipped ? 260 : 168, Math.max(46, (room - names - 2) / Math.max(1, across.length))));
  const narrow = width < 92;
  // Names stand upright in two lines where columns are narrow, else break into lines: they are never cut.
  const high = longest(across, !flipped, ([name]) => name.length);
  const lines = longest(across, !flipped, ([name]) => linesOf(name, Math.floor((width - 20) / 8.4))) || 1;
  const problem = !flipped && shown.columns.some((c) => c.problem) ? 17 : 0;
  headHeight = narrow ? Math.round(Math.max(96, 26 + 7.8 * (high > 22 ? Math.ceil(high / 2) + 4 : high))) :
    (flipped ? 30 : 44) + 20 * lines + problem;
  if (before !== width) version++;
  grid.style.setProperty("--names", names + "px");
  grid.classList.toggle("narrow", narrow);
  place(canvas, { width: names + across.length * width, height: headHeight + down.length * ROW });
  grid.setAttribute("aria-rowcount", down.length + 1);
  grid.setAttribute("aria-colcount", across.length + 1);
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
  const { across, down } = shown;
  const range = (from, size, step, count) =>
    [Math.max(0, Math.floor(from / step) - AHEAD), Math.min(count, Math.ceil((from + size) / step) + AHEAD)];
  const [r0, r1] = range(grid.scrollTop, grid.clientHeight - headHeight, ROW, down.length);
  const [c0, c1] = range(grid.scrollLeft, grid.clientWidth - names, width, across.length);
  const keep = new Set([""]);
  for (let r = r0; r < r1; r++) keep.add(down[r]);
  // Before the table is turned, its elements go: they are for the other direction.
  for (const [key, d] of drawn) if (!keep.has(key) || d.flipped !== shown.flipped) d.element.remove(), drawn.delete(key);
  drawRow("", 0, c0, c1);
  for (let r = r0; r < r1; r++) drawRow(down[r], r + 1, c0, c1);
  const [line, column] = placeOfCell(active);
  grid.setAttribute("aria-activedescendant", drawn.get(line)?.cells.get(column)?.id ?? "");
  grid.dataset.about = !selected ? "" : selected.row && selected.column ? "cell" :
    !selected.row === shown.flipped ? "line" : "column";
}

function place(element, styles) {
  for (const [name, pixels] of Object.entries(styles)) {
    if (element["at" + name] === pixels) continue;
    element["at" + name] = pixels;
    element.style[name] = pixels + "px";
  }
}

let ids = 0;
function drawRow(key, index, c0, c1) {
  let d = drawn.get(key);
  const drawing = `${version} ${index} ${c0} ${c1}`, { across, flipped } = shown;
  if (d?.drawing === drawing) return;
  if (!d) {
    const header = make("div", { className: "rowheader", role: index ? "rowheader" : "columnheader", ariaColIndex: 1 });
    Object.assign(header, cellAt(key, ""));
    d = { element: make("div", { className: index ? "row" : "head", role: "row" }, header), header, flipped,
      cells: new Map() };
    drawn.set(key, d);
  }
  d.drawing = drawing;
  index ? fillLine(d.header, key) : (d.header.textContent = flipped ? "LocalService" : "Node");
  d.element.ariaRowIndex = index + 1;
  place(d.element, index ? { top: headHeight + (index - 1) * ROW } : { height: headHeight });
  d.element.classList.toggle("current", index > 0 && key === placeOfCell(active)[0]);
  d.element.classList.toggle("group", !flipped && isGroup(key));
  for (const [id, e] of d.cells) {
    const at = across.indexOf(id);
    if (at < c0 || at >= c1) e.remove(), d.cells.delete(id);
  }
  for (let c = c0; c < c1; c++) {
    const id = across[c];
    let e = d.cells.get(id);
    if (!e) {
      const [className, role] = index ? ["cell", "gridcell"] : ["columnheader", "columnheader"];
      e = make("div", { id: "c" + ids++, className, role });
      Object.assign(e, cellAt(key, id));
      d.cells.set(id, e);
      d.element.append(e);
    }
    e.ariaColIndex = c + 2;
    place(e, { left: names + c * width, width });
    index ? fillCell(e, columns.get(e.column)) : fillHeader(e, id);
  }
  if (!d.element.parentNode) canvas.append(d.element);
}

// fillLine fills in the header of a line: a node or group, or in a turned table a LocalService.
function fillLine(e, key) {
  const column = shown.flipped ? columns.get(key) : null, [name, beside] = nameOf(key, shown.flipped);
  const text = JSON.stringify([name, beside, column?.problem]);
  if (e.text === text) return;
  e.text = text;
  const small = beside ? make("small", {}, beside) : "";
  if (column?.problem) small.classList.add("problem");
  column ? e.replaceChildren(make("b", {}, name), " ", small) : e.replaceChildren(small, name);
  if (column) e.ariaLabel = labelOf(column);
}

const labelOf = (column) =>
  `${column.key}: ${answering(column)} answering. ${column.problem || column.message || ""}`;

function fillHeader(e, id) {
  const column = shown.flipped ? null : columns.get(id);
  e.classList.toggle("current", id === placeOfCell(active)[1]);
  const [name, beside] = nameOf(id, !shown.flipped);
  const text = JSON.stringify([name, beside, column?.counts, column?.problem]);
  if (e.text === text) return;
  e.text = text;
  const children = [make("b", {}, name)];
  if (!column && beside) children.push(make("small", {}, beside));
  if (column) {
    const meter = make("span", { className: "meter" });
    for (const state of ["Healthy", "Degraded", "Down", "Empty"]) {
      if (!column.counts[state]) continue;
      const part = make("i", {});
      part.dataset.state = state;
      part.style.flexGrow = column.counts[state];
      meter.append(part);
    }
    const small = make("small", {}, scope.namespace ? "" : column.namespace + " ", answering(column));
    if (column.problem) small.append(make("em", {}, " " + column.status));
    children.push(small, meter);
    e.ariaLabel = labelOf(column);
  }
  e.replaceChildren(...children);
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

// goTo makes a cell the active one, by line and column, and brings it onto the screen.
function goTo(r, c) {
  const { across, down } = shown;
  r = Math.max(0, Math.min(down.length - 1, r));
  c = Math.max(0, Math.min(across.length - 1, c));
  if (r < 0 || c < 0) return;
  active = cellAt(down[r], across[c]);
  const [top, left] = [r * ROW, c * width];
  const [high, wide] = [grid.clientHeight - headHeight - ROW, grid.clientWidth - names - width];
  grid.scrollTop = Math.max(top - high, Math.min(top, grid.scrollTop));
  grid.scrollLeft = Math.max(left - wide, Math.min(left, grid.scrollLeft));
  version++;
  drawTable();
}

// indexes are the line and the column of a cell, -1 for what is not shown.
function indexes(cell) {
  const [line, column] = placeOfCell(cell);
  return [shown.down.indexOf(line), shown.across.indexOf(column)];
}

// bring makes what details are about the active cell, and brings it onto the screen.
function bring(cell) {
  const [r, c] = indexes({ row: cell.row || active.row, column: cell.column || active.column });
  if (!grid.hidden && r >= 0 && c >= 0) goTo(r, c);
}

function move(r, c) {
  goTo(r, c);
  showTipOfActive();
}

let follows = false; // whether the tip is that of the active cell, and stays with it when the table scrolls
function showTipOfActive() {
  const [line, column] = placeOfCell(active);
  showTip(drawn.get(line)?.cells.get(column));
  follows = true;
}

function keyInTable(event) {
  const [r, c] = indexes(active);
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
  if (!e.column || !e.row || e.cell) return showDetails({ column: e.column ?? "", row: e.row ?? "" });
  bring(e); // There is nothing to show.
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
