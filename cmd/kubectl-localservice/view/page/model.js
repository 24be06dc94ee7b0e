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
// What passes the filters, in order. There is a table for groups of nodes, and one for nodes. Each has LocalServices
// across and rows down or, turned, the other way round, by their keys.
const NONE = { across: [], down: [], flipped: false };
let shown = { columns: [], rows: [], tables: [NONE, NONE], worst: new Map(), causes: [], counts: {} };
let active = { column: "", row: "" }; // where the keyboard is
const wanted = new Set(); // states to show; all if there are none
let wantedCause = ""; // the key of a cause, "" for all
const isGroup = (row) => row.includes("="); // <label>=<value>, which no name of a node is
const kindOf = (row) => (isGroup(row) ? 0 : 1); // the number of its table

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
  const column = columns.get(key) ?? { key, cells: new Map(), counts: noCounts(), kinds: [0, 0] };
  columns.set(key, column);
  for (const [row, cell] of Object.entries(change.cells)) {
    const before = column.cells.get(row);
    if (before) column.counts[before.state]--;
    column.kinds[kindOf(row)] += !!cell - !!before;
    if (cell) {
      column.counts[cell.state]++;
      column.cells.set(row, cell);
      if (!before) rows.set(row, (rows.get(row) ?? 0) + 1);
    } else if (column.cells.delete(row)) leaveRow(row);
    axes ||= !before !== !cell;
    detailsChanged(key, row);
  }
  const { cells, ...about } = change;
  about.groupBy ??= ""; // It is left out if it is empty.
  about.notices = about.notices?.filter((n) => n.message) ?? [];
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

// noticeOf is the notice that explains a cell.
const noticeOf = (column, cell) => column.notices.find((n) => n.reason && n.reason === cell.reason);
// causeOf is the key of a cell's cause. What is wrong with pods is about one app: its image, its log.
const causeOf = (column, cell) => [cell.reason, noticeOf(column, cell)?.cause ?? cell.cause,
  ...(cell.reason === "PodsNotReady" ? [column.key] : [])].join(" ");
const passes = (column, cell) => (wanted.size === 0 || wanted.has(cell.state)) && (!wantedCause ||
  column.about.some(isWantedCause) || isWantedCause(column.causes.get(causeOf(column, cell))));
const isWantedCause = (cause) => cause?.key === wantedCause || cause?.line === wantedCause;
const isFiltered = () => wanted.size > 0 || wantedCause !== "";

function matcher(id) {
  const words = $(id).value.toLowerCase().split(/\s+/);
  return (text) => words.every((w) => text.toLowerCase().includes(w));
}

const FEW_ROWS = 9;
const FEW_LINES = 5; // of one cause
const noCounts = () => Object.fromEntries(STATES.map((state) => [state, 0]));

function filter() {
  order ??= [...rows.keys()].sort((a, b) => isGroup(b) - isGroup(a) || byNumber(a, b));
  const byName = matcher("by-name"), byNode = matcher("by-node");
  const visible = order.filter(byNode);
  const worst = new Map(), causes = new Map(), counts = noCounts(), firsts = new Map();
  for (const c of columns.values()) findCauses(c, firsts);
  const named = [...columns.values()].filter((c) => byName(c.key));
  for (const c of named) {
    c.worst = Math.min(RANK.Healthy, ...c.about.map((a) => a.rank));
    c.passing = [0, 0];
    for (const row of visible) {
      const cell = c.cells.get(row);
      if (!cell) continue;
      counts[cell.state]++;
      const isWanted = wanted.size === 0 || wanted.has(cell.state), isExplained = !!noticeOf(c, cell);
      if (isWanted && cell.state !== "Healthy") addCause(causes, c.causes.get(causeOf(c, cell)), c, row, cell);
      if (isExplained) c.worst = Math.min(c.worst, RANK.Degraded);
      if (!passes(c, cell)) continue;
      c.passing[kindOf(row)]++;
      c.worst = Math.min(c.worst, RANK[cell.state]);
      const rank = worst.get(row);
      if (rank === undefined || RANK[cell.state] < rank) worst.set(row, RANK[cell.state]);
    }
    if (wanted.size === 0 || c.passing.some(Boolean)) for (const a of c.about) addCause(causes, a, c);
  }
  const cs = named.filter((c) => !isFiltered() || c.passing.some(Boolean)).sort((a, b) => byNumber(a.key, b.key));
  const tables = [0, 1].map((kind) => tableOf(kind, cs, worst));
  const rs = tables.flatMap((t) => t.rows);
  shown = { columns: cs, rows: rs, tables, worst, causes: listed(causes), counts };
  if (!cs.some((c) => c.key === active.column)) active.column = cs[0]?.key ?? "";
  if (!worst.has(active.row)) active.row = rs[0] ?? "";
}

// tableOf is the table of one kind of rows, with the LocalServices that have names there.
function tableOf(kind, cs, worst) {
  const isThere = (c) => (c.cells.size ? c.kinds[kind] > 0 : kind === 1);
  const all = order.filter((row) => kindOf(row) === kind);
  const few = all.filter((row) => worst.has(row));
  const place = (row) => Math.min(worst.get(row), RANK.Healthy); // Problems first.
  const rs = few.toSorted((a, b) => place(a) - place(b)); // It keeps the order of equal ones.
  const there = cs.filter((c) => isThere(c) && (!isFiltered() || c.passing[kind]));
  // The longer list goes down, where there is more room; a few rows go across. Filters do not change that.
  const flipped = all.length > 0 && all.length < Math.max(FEW_ROWS, [...columns.values()].filter(isThere).length);
  if (all.length ? !rs.length : kind === 0) return { ...NONE, rows: rs };
  const keys = (flipped ? there.toSorted((a, b) => a.worst - b.worst) : there).map((c) => c.key);
  return { rows: rs, across: flipped ? few : keys, down: flipped ? keys : rs, flipped };
}

// aboutColumn is what concerns a LocalService as a whole, but what explains a cell. Without a cause, it is about the
// controller: that comes before what follows from it.
function aboutColumn(c) {
  const explains = (n) => n.reason && [...c.cells.values()].some((cell) => cell.reason === n.reason);
  const about = c.notices.filter((n) => n.message !== watching.controller && !explains(n)).map((n) =>
    ({ state: "Hint", rank: n.cause ? RANK.Empty - 0.25 : -0.5, text: n.cause || n.message, message: n.message,
      isWhole: true, isCommon: n.common }));
  if (c.problem && !c.reported) about.push({ state: "Problem", rank: -1, text: c.status, message: c.problem });
  return about.map((a) => ({ ...a, key: `LocalService ${a.text}`, act: a.message }));
}

// findCauses finds what is wrong with a LocalService and, by the causes' keys, with its names: of those with a cause,
// the first says what to do. A line is for the LocalServices that say the same, and called after the first of them.
function findCauses(c, firsts) {
  const add = (cause) => {
    const says = JSON.stringify([cause.key, cause.act]);
    if (!firsts.has(says)) firsts.set(says, `${cause.key} ${c.key}`);
    return Object.assign(cause, { line: firsts.get(says) });
  };
  c.about = aboutColumn(c).map(add);
  c.causes = new Map();
  if (c.counts.Healthy === c.cells.size) return;
  for (const row of order) {
    const cell = c.cells.get(row);
    if (!cell || cell.state === "Healthy") continue;
    const key = causeOf(c, cell), notice = noticeOf(c, cell);
    if (!c.causes.has(key)) c.causes.set(key, add(notice ?
      { key, text: notice.cause, message: notice.message, act: notice.message, isWhole: true } :
      // Its message says after the cause what it is about, and what to do.
      { key, text: cell.cause, message: cell.message.slice(cell.cause.length).replace(/^; | /, ""), act: cell.act,
        example: cell.message }));
  }
}

// addCause adds a cell to its cause and its line, or without a row a LocalService.
function addCause(causes, about, column, row, cell) {
  const state = cell?.state ?? about.state, rank = about.rank ?? RANK[state] - (about.isWhole ? 0.5 : 0);
  const addTo = (all, key) => {
    let cause = all.get(key);
    if (!cause) {
      cause = { ...about, key, state, rank, count: 0, columns: new Map(), rows: new Set(), lines: new Map() };
      all.set(key, cause);
    }
    if (rank < cause.rank) Object.assign(cause, { state, rank });
    cause.count++;
    cause.columns.set(column, (cause.columns.get(column) ?? 0) + 1);
    if (row) cause.rows.add(row);
    cause.isExample ||= !!cause.example && cell.message !== cause.example;
    return cause;
  };
  addTo(addTo(causes, about.key).lines, about.line);
}

// listed are the lines of all causes, the worst first. One with many lines has only one, until that is chosen.
function listed(causes) {
  const sorted = (all) => [...all.values()].sort((a, b) =>
    a.rank - b.rank || b.count - a.count || byNumber(a.text, b.text));
  return sorted(causes).flatMap((cause) => {
    const lines = sorted(cause.lines), isOpen = [cause, ...lines].some((c) => c.key === wantedCause);
    if (lines.length <= FEW_LINES) return lines;
    return [{ ...cause, isSum: true, isOpen }, ...(isOpen ? lines.map((line) => ({ ...line, isPart: true })) : [])];
  });
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
