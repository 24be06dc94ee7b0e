// What there is, as /events tells it, and what of it passes the filters. page.js draws it.
"use strict";

const STATES = ["Ready", "Degraded", "Down", "Empty"];
const byNumber = new Intl.Collator(undefined, { numeric: true }).compare;
const $ = (id) => document.getElementById(id);

let scope = {}, watching = { loaded: false, problems: [] };
const columns = new Map(); // by namespace/name: what the updates say, with Maps for cells and counts
const rows = new Map(); // name -> the number of columns that have a cell there
let shown = { columns: [], rows: [], longest: 0 }; // what passes the filters, in order
let active = { column: "", row: "" }, selected = null; // where the keyboard is; what the details are about
const wanted = new Set(); // states to show; all if there are none
const isGroup = (row) => row.includes("="); // <label>=<value>, which no name of a node is

// wordsOf are what to show of a row: of a group the end of the label's key, and the value; of a node its name.
function wordsOf(row) {
  const at = isGroup(row) ? row.indexOf("=") : 0;
  return [row.slice(row.slice(0, at).lastIndexOf("/") + 1, at), row.slice(at && at + 1)];
}

// The updates.

function apply(update) {
  let axes = false;
  if (update.reset) {
    scope = update.reset;
    columns.clear();
    rows.clear();
    axes = true;
  }
  for (const change of update.columns ?? []) axes = applyColumn(change) || axes;
  for (const key of update.gone ?? []) {
    for (const row of columns.get(key)?.cells.keys() ?? []) leaveRow(row);
    axes = columns.delete(key) || axes;
  }
  watching = update.status ?? watching;
  schedule(axes || wanted.size > 0);
}

function applyColumn(change) {
  const key = change.namespace + "/" + change.name;
  let axes = !columns.has(key);
  const column = columns.get(key) ?? { key, cells: new Map(), counts: Object.fromEntries(STATES.map((s) => [s, 0])) };
  columns.set(key, column);
  for (const [row, cell] of Object.entries(change.cells)) {
    const before = column.cells.get(row);
    if (before) column.counts[before.state]--;
    if (cell) {
      column.counts[cell.state]++;
      column.cells.set(row, cell);
      if (!before) rows.set(row, (rows.get(row) ?? 0) + 1);
    } else if (column.cells.delete(row)) leaveRow(row);
    axes ||= !before !== !cell;
    if (selected?.column === key && selected.row === row) showDetails(selected);
  }
  Object.assign(column, { namespace: change.namespace, name: change.name, mode: change.mode, message: change.message });
  return axes;
}

function leaveRow(row) {
  const left = rows.get(row) - 1;
  left > 0 ? rows.set(row, left) : rows.delete(row);
}

// What is shown.

function filter() {
  const matches = (id) => {
    const words = $(id).value.toLowerCase().split(/\s+/);
    return (text) => words.every((w) => text.toLowerCase().includes(w));
  };
  const byName = matches("by-name"), byNode = matches("by-node");
  let cs = [...columns.values()].filter((c) => byName(c.key)), rs;
  if (wanted.size > 0) {
    const some = new Set(), withSome = new Set();
    for (const c of cs) {
      for (const [row, cell] of c.cells) if (wanted.has(cell.state) && byNode(row)) some.add(row), withSome.add(c);
    }
    [cs, rs] = [[...withSome], [...some]];
  } else {
    const all = cs.length === columns.size ? rows.keys() : new Set(cs.flatMap((c) => [...c.cells.keys()]));
    rs = [...all].filter(byNode);
  }
  cs.sort((a, b) => byNumber(a.key, b.key));
  rs.sort((a, b) => isGroup(a) - isGroup(b) || byNumber(a, b));
  const longest = rs.reduce((most, row) => Math.max(most, wordsOf(row).join(" ").length), 0);
  shown = { columns: cs, rows: rs, longest };
  if (!cs.some((c) => c.key === active.column)) active.column = cs[0]?.key ?? "";
  if (!rs.includes(active.row)) active.row = rs[0] ?? "";
}
