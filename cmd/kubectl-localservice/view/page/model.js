// What there is, as /events reports it, and what of it passes the filters. The other files draw it.
"use strict";

// The worst first. A node is empty only if all its names are.
const STATES = ["Down", "Degraded", "Healthy", "Empty"];
const RANK = Object.fromEntries(STATES.map((state, i) => [state, i]));
const byNumber = new Intl.Collator(undefined, { numeric: true }).compare;
const $ = (id) => document.getElementById(id);

let scope = {}, watching = { loaded: false, problems: [] };
const columns = new Map(); // by namespace/name: what the updates say, with Maps for cells and counts
const rows = new Map(); // name -> the number of columns that have a cell there
const places = new Map(); // node -> its zone and pool
let order = []; // the names of all rows: groups, then nodes
// What passes the filters, in order. The table has one of them across and the other down, by their keys.
let shown = { columns: [], rows: [], across: [], down: [], flipped: false, worst: new Map(), causes: [] };
let active = { column: "", row: "" }; // where the keyboard is
const wanted = new Set(); // states to show; all if there are none
let wantedCause = ""; // the key of a cause, "" for all
const isGroup = (row) => row.includes("="); // <label>=<value>, which no name of a node is

// wordsOf are what to show of a row: of a group the end of the label's key, and the value; of a node its name.
function wordsOf(row) {
  const at = isGroup(row) ? row.indexOf("=") : 0;
  return [row.slice(row.slice(0, at).lastIndexOf("/") + 1, at), row.slice(at && at + 1)];
}

// called is the name of a LocalService, with its namespace if the page shows several.
const called = (column) => (scope.namespace ? column.name : column.key);

const plural = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;

// The updates.

function apply(update) {
  let axes = false;
  if (update.reset) {
    scope = update.reset;
    columns.clear();
    rows.clear();
    places.clear();
    axes = true;
  }
  for (const [key, change] of Object.entries(update.columns ?? {})) {
    axes = (change ? applyColumn(key, change) : leaveColumn(key)) || axes;
  }
  for (const [node, place] of Object.entries(update.places ?? {})) {
    place ? places.set(node, place) : places.delete(node);
  }
  watching = update.status ?? watching;
  if (axes) order = null;
  schedule(true);
}

function applyColumn(key, change) {
  let axes = !columns.has(key);
  const none = Object.fromEntries(STATES.map((state) => [state, 0]));
  const column = columns.get(key) ?? { key, cells: new Map(), counts: none };
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
    detailsChanged(key, row);
  }
  const { cells, ...about } = change;
  for (const field of ["message", "groupBy"]) about[field] ??= ""; // Empty ones are left out.
  Object.assign(column, about);
  return axes;
}

function leaveColumn(key) {
  for (const row of columns.get(key)?.cells.keys() ?? []) leaveRow(row);
  return columns.delete(key);
}

function leaveRow(row) {
  const left = rows.get(row) - 1;
  left > 0 ? rows.set(row, left) : rows.delete(row);
}

// What is shown.

const causeOf = (cell) => `${cell.reason} ${cell.cause}`;
const passes = (cell) => (wanted.size === 0 || wanted.has(cell.state)) &&
  (!wantedCause || causeOf(cell) === wantedCause);
const isFiltered = () => wanted.size > 0 || wantedCause !== "";

function matcher(id) {
  const words = $(id).value.toLowerCase().split(/\s+/);
  return (text) => words.every((w) => text.toLowerCase().includes(w));
}

function filter() {
  order ??= [...rows.keys()].sort((a, b) => isGroup(b) - isGroup(a) || byNumber(a, b));
  const byName = matcher("by-name"), byNode = matcher("by-node");
  const visible = new Set(order.filter(byNode));
  const worst = new Map(), causes = new Map(), some = new Set();
  const named = [...columns.values()].filter((c) => byName(c.key));
  for (const c of named) {
    const notice = !c.problem && c.message.split("\n").filter((line) => line !== watching.controller).join("\n");
    c.worst = c.problem ? RANK.Down : notice ? RANK.Degraded : RANK.Healthy;
    for (const [row, cell] of c.cells) {
      if (!visible.has(row)) continue;
      const isCovered = cell.state === "Healthy" || (notice && cell.state === "Empty");
      if (!isCovered && (wanted.size === 0 || wanted.has(cell.state))) addCause(causes, c, row, cell);
      if (!passes(cell)) continue;
      some.add(c);
      c.worst = Math.min(c.worst, RANK[cell.state]);
      const rank = worst.get(row);
      if (rank === undefined || RANK[cell.state] < rank) worst.set(row, RANK[cell.state]);
    }
    if (c.problem && !c.reported) addProblem(causes, c, "Down", c.status, c.problem);
    if (notice) addProblem(causes, c, "Degraded", "", notice);
  }
  const cs = named.filter((c) => !isFiltered() || some.has(c)).sort((a, b) => byNumber(a.key, b.key));
  const rs = order.filter((row) => worst.has(row));
  const place = (row) => Math.min(worst.get(row), RANK.Healthy); // Problems first.
  rs.sort((a, b) => isGroup(b) - isGroup(a) || place(a) - place(b)); // It keeps the order of equal ones.
  const sorted = [...causes.values()].sort((a, b) =>
    a.rank - b.rank || b.count - a.count || byNumber(a.text, b.text));
  // The longer list goes down, where there is more room. Filters do not change that.
  const flipped = rows.size > 0 && rows.size < columns.size;
  const keys = (flipped ? cs.toSorted((a, b) => a.worst - b.worst) : cs).map((c) => c.key);
  const few = flipped ? order.filter((row) => worst.has(row)) : keys;
  shown = { columns: cs, rows: rs, across: few, down: flipped ? keys : rs, flipped, worst, causes: sorted };
  if (!cs.some((c) => c.key === active.column)) active.column = cs[0]?.key ?? "";
  if (!worst.has(active.row)) active.row = rs[0] ?? "";
}

function addCause(causes, column, row, cell) {
  const key = causeOf(cell);
  let cause = causes.get(key);
  if (!cause) {
    cause = { key, text: cell.cause, rank: Infinity, count: 0, columns: new Map(), rows: new Set(),
      message: cell.act };
    causes.set(key, cause);
  }
  if (cause.message !== cell.act && !cause.columns.has(column)) cause.message = ""; // It is about one LocalService.
  if (RANK[cell.state] < cause.rank) Object.assign(cause, { state: cell.state, rank: RANK[cell.state] });
  cause.count++;
  cause.columns.set(column, (cause.columns.get(column) ?? 0) + 1);
  cause.rows.add(row);
}

// addProblem adds what concerns a LocalService as a whole.
function addProblem(causes, column, state, text, about) {
  const key = `LocalService ${text} ${about}`;
  let cause = causes.get(key);
  if (!cause) {
    const rank = state === "Down" ? -1 : RANK[state];
    cause = { key, state, rank, text, about, count: 0, columns: new Map() };
    causes.set(key, cause);
  }
  cause.count++;
  cause.columns.set(column, 1);
}

// describe is a title and what there is to say of a cell.
function describe(column, row) {
  const cell = column.cells.get(row);
  const title = `${called(column)}, ${row}`;
  if (!cell) {
    return [title, column.groupBy && !isGroup(row) ? `names are by ${column.groupBy}: see the groups at the top` :
      "no name here"];
  }
  return [title, cell.message || `${cell.ready} of ${plural(cell.total, "endpoint")} ready`, cell.state];
}

// answering is the column ANSWERING of kubectl get.
const answering = (column) => `${column.answering}/${column.nodes}`;
