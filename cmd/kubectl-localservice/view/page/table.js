// The table: draws only what is on the screen. What comes from the cluster is only ever set as text.
"use strict";

const ROW = 34, GAP = 14, AHEAD = 4; // pixels; between the tables; rows and columns beyond the edges
const PHONE = matchMedia("(max-width: 760px)");
const grid = $("grid"), tip = $("tip"), details = $("details");

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

// tables are the elements of the tables: of groups of nodes, and of nodes. drawn are the elements that there are in each:
// by the key of their line, and in each by that of their column on the screen. "" is the line of the headers.
const tables = [0, 1].map(() => ({ element: make("div", { className: "table", role: "rowgroup" }), drawn: new Map(),
  ...NONE, top: 0, names: 0, width: 0, headHeight: 0 }));
grid.append(...tables.map((t) => t.element));
let version = 0; // of what the elements show: scrolling alone does not change it

// cellAt is what is where a line and a column of a table meet: the key of a LocalService, and a row.
const cellAt = (t, down, across) => (t.flipped ? { column: down, row: across } : { column: across, row: down });
// placeOfCell is the table of a cell, and its line and column.
function placeOfCell({ column, row }) {
  const t = tables[kindOf(row)];
  return t.flipped ? [t, column, row] : [t, row, column];
}

// nameOf is what the header of a line or column says: what is before the name, the name, and what is behind it.
function nameOf(key, isColumn) {
  const column = isColumn && columns.get(key);
  if (!column) return [...wordsOf(key), ""];
  return [scope.namespace ? "" : column.namespace, column.name,
    answering(column) + (column.problem && !PHONE.matches ? " " + column.status : "")];
}

const ruler = document.createElement("canvas").getContext("2d");
function widthOf(text, isBold) {
  ruler.font = (isBold ? "600 " : "") + "14px " + getComputedStyle(grid).fontFamily;
  return ruler.measureText(text).width;
}
const longest = (texts) => texts.reduce((most, text) => (text.length > most.length ? text : most), "");

let measured = ""; // for which contents, and in how much room
function measure() {
  const room = $("details").hidden ? grid.clientWidth : document.querySelector("main").clientWidth;
  if (measured === `${version} ${room}`) return;
  let top = 0;
  for (const [i, t] of tables.entries()) {
    const before = `${t.names} ${t.width}`;
    measureTable(Object.assign(t, shown.tables[i]), room);
    if (`${t.names} ${t.width}` !== before) version++;
    t.top = top;
    top += t.height && t.height + GAP;
  }
  grid.setAttribute("aria-rowcount", tables.reduce((sum, t) => sum + (t.height ? t.down.length + 1 : 0), 0));
  grid.setAttribute("aria-colcount", Math.max(...tables.map((t) => t.across.length)) + 1);
  measured = `${version} ${room}`;
}

function measureTable(t, room) {
  const { across, down, flipped, element } = t, [comfortable, least] = PHONE.matches ? [64, 0.36] : [104, 0.26];
  // On a phone, what is beside a name is above it.
  const texts = down.map((key) => nameOf(key, flipped)).flatMap(([before, name, behind]) =>
    (PHONE.matches && before ? [name, before + "  " + behind] : [[before, name, behind].filter(Boolean).join("  ")]));
  const needs = 34 + Math.max(widthOf("LocalService"), 1.02 * widthOf(longest(texts), flipped));
  t.names = Math.round(Math.min(needs, 420, Math.max(least * room, room - 2 - across.length * comfortable)));
  t.width = Math.floor(Math.min(168, Math.max(46, (room - t.names - 2) / Math.max(1, across.length))));
  // Names stand upright in two lines where columns are narrow, else break into lines: they are never cut.
  const heads = across.map((key) => nameOf(key, !flipped));
  const most = (count) => heads.reduce((most, head) => Math.max(most, count(head)), 0);
  const lines = most(([, name]) => linesOf(name, t.width - 15)) || 1;
  const narrow = t.width < 62 || (t.width < 92 && lines > 3), high = most(([, name]) => name.length);
  const more = most(([before]) => before && 1) + !flipped + most(([, , behind]) => 0.86 * widthOf(behind) > t.width - 15);
  t.headHeight = narrow ? Math.round(Math.max(96, 26 + 7.8 * (high > 22 ? Math.ceil(high / 2) + 4 : high))) :
    16 + 20 * lines + 17 * more + (flipped ? 0 : 10);
  element.hidden = across.length + down.length === 0;
  t.height = element.hidden ? 0 : t.headHeight + down.length * ROW;
  element.classList.toggle("narrow", narrow);
  element.style.setProperty("--names", t.names + "px");
  place(element, { width: t.names + across.length * t.width, height: t.height });
}

// linesOf is how many lines a name takes that breaks at hyphens, and else where it must.
function linesOf(name, room) {
  let lines = 1, used = 0;
  for (const word of name.split(/(?<=-)/)) {
    const needs = widthOf(word, true);
    if (used && used + needs > room) lines++, used = 0;
    lines += Math.floor(1.1 * needs / room);
    used += needs;
  }
  return lines;
}

function drawTables() {
  let index = 0;
  for (const t of tables) {
    drawTable(t, index);
    if (!t.element.hidden) index += t.down.length + 1;
  }
  const [{ drawn }, line, column] = placeOfCell(active);
  grid.setAttribute("aria-activedescendant", drawn.get(line)?.cells.get(column)?.id ?? "");
}

function drawTable(t, index) {
  const { across, down, drawn, flipped } = t;
  const range = (from, size, step, count) =>
    [Math.max(0, Math.floor(from / step) - AHEAD), Math.min(count, Math.ceil((from + size) / step) + AHEAD)];
  const [r0, r1] = range(grid.scrollTop - t.top, grid.clientHeight - t.headHeight, ROW, down.length);
  const [c0, c1] = range(grid.scrollLeft, grid.clientWidth - t.names, t.width, across.length);
  const keep = new Set([""]);
  for (let r = r0; r < r1; r++) keep.add(down[r]);
  // Before the table is turned, its elements go: they are for the other direction.
  for (const [key, d] of drawn) if (!keep.has(key) || d.flipped !== flipped) d.element.remove(), drawn.delete(key);
  drawRow(t, "", index, 0, c0, c1);
  for (let r = r0; r < r1; r++) drawRow(t, down[r], index, r + 1, c0, c1);
  t.element.dataset.about = !selected ? "" : selected.row && selected.column ? "cell" :
    !selected.row === flipped ? "line" : "column";
}

function place(element, styles) {
  for (const [name, pixels] of Object.entries(styles)) {
    if (element["at" + name] === pixels) continue;
    element["at" + name] = pixels;
    element.style[name] = pixels + "px";
  }
}

let ids = 0;
function drawRow(t, key, start, index, c0, c1) {
  const { across, drawn, flipped } = t, drawing = `${version} ${start + index} ${c0} ${c1}`;
  let d = drawn.get(key);
  if (d?.drawing === drawing) return;
  if (!d) {
    const header = make("div", { className: "rowheader", role: index ? "rowheader" : "columnheader", ariaColIndex: 1 });
    Object.assign(header, cellAt(t, key, ""));
    d = { element: make("div", { className: index ? "row" : "head", role: "row" }, header), header, flipped,
      cells: new Map() };
    drawn.set(key, d);
  }
  d.drawing = drawing;
  if (index) fillHeader(d.header, key, flipped);
  else d.header.textContent = flipped ? "LocalService" : t === tables[0] ? "Group" : "Node";
  d.element.ariaRowIndex = start + index + 1;
  place(d.element, index ? { top: t.headHeight + (index - 1) * ROW } : { height: t.headHeight });
  const [, line, column] = placeOfCell(active);
  d.element.classList.toggle("current", index > 0 && key === line);
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
      Object.assign(e, cellAt(t, key, id));
      d.cells.set(id, e);
      d.element.append(e);
    }
    e.ariaColIndex = c + 2;
    place(e, { left: t.names + c * t.width, width: t.width });
    if (index) fillCell(e, columns.get(e.column));
    else fillHeader(e, id, !flipped, true), e.classList.toggle("current", id === column);
  }
  if (!d.element.parentNode) t.element.append(d.element);
}

// fillHeader fills in the header of a line or column: of a node or group, or of a LocalService, at the top with a meter.
function fillHeader(e, key, isColumn, isTop) {
  const column = isColumn ? columns.get(key) : null, [before, name, behind] = nameOf(key, isColumn);
  const text = JSON.stringify([before, name, behind, column?.counts, column?.problem]);
  if (e.text === text) return;
  e.text = text;
  const small = (className, text) => (text ? [make("small", { className }, text)] : []);
  e.replaceChildren(...small("before", before), make(column || isTop ? "b" : "span", { className: "name" }, name),
    ...small(column?.problem ? "problem" : "behind", behind), ...(column && isTop ? [meter(column.counts)] : []));
  e.title = isTop ? "" : name;
  if (column) {
    e.ariaLabel = `${column.key}: ${answering(column)} answering. ${column.problem || textOf(noticesOf(column))}`;
  }
}

function meter(counts) {
  const e = make("span", { className: "meter" });
  for (const state of ["Healthy", "Degraded", "Down", "Empty"].filter((state) => counts[state])) {
    const part = make("i", {});
    part.dataset.state = state;
    part.style.flexGrow = counts[state];
    e.append(part);
  }
  return e;
}

function fillCell(e, column) {
  const cell = column.cells.get(e.row);
  const className = "cell" + (column.key === active.column && e.row === active.row ? " active" : "") +
    (cell && !passes(column, cell) ? " dim" : "");
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

// goTo makes a cell the active one, by line and column, and brings it onto the screen. The lines of the groups come first.
function goTo(r, c) {
  const [groups, nodes] = tables;
  r = Math.max(0, Math.min(groups.down.length + nodes.down.length - 1, r));
  const t = r < groups.down.length ? groups : nodes;
  if (t === nodes) r -= groups.down.length;
  c = Math.max(0, Math.min(t.across.length - 1, c));
  if (r < 0 || c < 0) return;
  active = cellAt(t, t.down[r], t.across[c]);
  const [top, left] = [t.top + r * ROW, c * t.width];
  const [high, wide] = [grid.clientHeight - t.headHeight - ROW, grid.clientWidth - t.names - t.width];
  grid.scrollTop = Math.max(top - high, Math.min(top, grid.scrollTop));
  grid.scrollLeft = Math.max(left - wide, Math.min(left, grid.scrollLeft));
  version++;
  drawTables();
}

// indexes are the line and the column of a cell, -1 for what is not shown.
function indexes(cell) {
  const [t, line, column] = placeOfCell(cell), r = t.down.indexOf(line);
  return [r < 0 || t === tables[0] ? r : r + tables[0].down.length, t.across.indexOf(column)];
}

// bring makes what details are about the active cell, and brings it onto the screen.
function bring({ column, row }) {
  const rowsThere = [active.row, ...columns.get(column)?.cells.keys() ?? []];
  row ||= rowsThere.find((row) => indexes({ column, row }).every((i) => i >= 0)) ?? "";
  const [r, c] = indexes({ row, column: column || active.column });
  if (!grid.hidden && r >= 0 && c >= 0) goTo(r, c);
}

function move(r, c) {
  goTo(r, c);
  showTipOfActive();
}

let follows = false; // whether the tip is that of the active cell, and stays with it when the table scrolls
function showTipOfActive() {
  const [{ drawn }, line, column] = placeOfCell(active);
  showTip(drawn.get(line)?.cells.get(column));
  follows = true;
}

function keyInTable(event) {
  const [r, c] = indexes(active);
  const page = Math.max(1, Math.floor((grid.clientHeight - placeOfCell(active)[0].headHeight) / ROW) - 1), end = 1e9;
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
