// The details of a cell, of a node or of a LocalService, with commands to copy; and the tip.
"use strict";

let selected = null; // what the details are about: a column, a row, or both
let toBring = null; // what the details are newly about: the table shows it at the next drawing
let isOutdated = false; // a cell has changed that the details are about

function detailsChanged(column, row) {
  isOutdated ||= selected && (selected.column || column) === column && (selected.row || row) === row;
}

// quoted is a word of a command, so that a shell takes it as one.
const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'");
// command is one of kubectl, which takes flags only behind the name of a plugin.
const command = (...words) => ["kubectl", ...words, ...(scope.flags ?? [])].map(quoted).join(" ");

function copyable(text) {
  const button = make("button", { type: "button", className: "copy", ariaLabel: "Copy: " + text }, "Copy");
  button.addEventListener("click", async () => {
    button.textContent = await navigator.clipboard.writeText(text).then(() => "Copied", () => "Not copied");
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return make("div", { className: "copyable" }, make("code", {}, ...wordsOfCommand(text)), button);
}

// wordsOfCommand are elements that do not break, as a flag must not.
function wordsOfCommand(text) {
  return text.split(" ").flatMap((word, i) => [i ? " " : "", make("span", {}, word)]);
}

function age(time) {
  const seconds = Math.max(0, (Date.now() - Date.parse(time)) / 1000);
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["m", 60]]) {
    if (seconds >= 2 * size) return Math.floor(seconds / size) + unit;
  }
  return Math.floor(seconds) + "s";
}

function section(name, ...items) {
  if (items.length === 0) return [];
  const list = make("ul", {}, ...items.map((item) => make("li", {}, ...[item].flat())));
  return [make("dt", {}, name), make("dd", {}, list)];
}

// link is a button that shows other details.
function link(cell, ...text) {
  const button = make("button", { type: "button", className: "link" }, ...text);
  button.addEventListener("click", () => showDetails(cell));
  return button;
}

async function showDetails(cell) {
  const again = selected?.column === cell.column && selected?.row === cell.row;
  const column = columns.get(cell.column);
  isOutdated = false;
  if ((cell.column && !column) || (cell.row && !rows.has(cell.row))) return closeDetails();
  selected = cell;
  const content = column && cell.row ? await detailsOfCell(column, cell) :
    column ? detailsOfColumn(column) : detailsOfRow(cell.row);
  if (selected !== cell) return; // Something else was chosen meanwhile.
  const close = make("button", { type: "button", className: "close", ariaLabel: "Close" }, "×");
  close.addEventListener("click", closeDetails);
  const top = again ? details.scrollTop : 0;
  details.replaceChildren(close, ...content);
  details.scrollTop = top;
  if (details.hidden) {
    details.hidden = false;
    tip.hidden = true; // The table is narrower now.
  }
  if (!again) toBring = cell;
  version++;
  schedule(false);
  keepInAddress();
}

// newest are the last few events, the newest first.
function newest(events) {
  const timeOf = (e) => e.series?.lastObservedTime ?? e.lastTimestamp ?? e.eventTime ?? e.metadata.creationTimestamp;
  return events.map((e) => ({ ...e, time: timeOf(e), count: e.series?.count ?? e.count }))
    .sort((a, b) => Date.parse(b.time) - Date.parse(a.time)).slice(0, 10);
}

// withNotices adds to a message those of the notices, before it what is about the controller.
function withNotices(column, state, heading, message) {
  const hints = (all) => title("Hint", "", ...all.map((n) => n.message)).slice(1);
  const [h2, ...lines] = title(state, heading, message);
  return [h2, ...hints(noticesOf(column).filter((n) => !n.cause)), ...lines,
    ...hints(noticesOf(column).filter((n) => n.cause))];
}

const noticesOf = (column) => column.notices.filter((n) => !n.common);
const textOf = (notices) => notices.map((n) => n.message).join(" ");

function title(state, text, ...messages) {
  const h2 = make("h2", {}, state ? shape(state) : "", text);
  const lines = messages.filter(Boolean).map((line) => make("p", { className: "message" }, line));
  for (const e of [h2, ...lines]) e.dataset.state = state ?? "";
  return [h2, ...lines];
}

async function detailsOfCell(column, cell) {
  const asked = new URLSearchParams({ token, ...cell });
  const answer = await fetch("cell?" + asked).catch(() => null);
  const node = answer?.ok ? await answer.json() : null;
  const [, message, state] = describe(column, cell.row);
  const list = make("dl", {}), ns = ["-n", column.namespace];
  if (node) {
    if (node.dnsName) list.append(...section("DNS name", copyable(node.dnsName)));
    list.append(...section("Pods", ...node.pods.map((p) => {
      const why = p.ready ? ["ready", plural(p.restarts, "restart")] : [p.message || p.reason || "not ready"];
      return [p.name, make("small", {}, [...why, "age " + age(p.created)].join(", "))];
    })));
  }
  const commands = [];
  for (const p of node?.pods.filter((p) => !p.ready).slice(0, 2) ?? []) {
    const container = p.container ? ["-c", p.container] : [];
    if (p.log) {
      commands.push(command("logs", ...ns, p.name, ...container, ...(p.log === "Previous" ? ["--previous"] : [])));
    }
    commands.push(command("describe", "pod", ...ns, p.name));
  }
  if (node?.service && node.reason !== "ServiceMissing") {
    commands.push(command("describe", "service", ...ns, node.service));
  }
  if (!isGroup(cell.row) && !scope.notice) commands.push(command("describe", "node", cell.row));
  commands.push(command("localservice", "nodes", column.name, ...ns));
  list.append(...section("Commands", ...commands.map(copyable)));
  if (node) {
    list.append(...section("Ready addresses", ...node.addresses));
    const lines = newest(node.events ?? []).map((e) => [
      make("span", { className: e.type === "Warning" ? "warning" : "" }, e.reason),
      make("small", {}, `${age(e.time)} ago${e.count > 1 ? ", " + e.count + " times" : ""}, ` +
        `${e.involvedObject.kind} ${e.involvedObject.name}`),
      e.message]);
    list.append(...section("Events", ...(node.eventsProblem ? [node.eventsProblem] : lines)));
    list.append(...section("Reason", ...(node.reason ? [node.reason] : [])));
  }
  list.append(...section("More", link({ column: "", row: cell.row }, "All names of " + cell.row),
    link({ column: column.key, row: "" }, "LocalService " + column.key)));
  return [...withNotices(column, state, `${called(column)} on ${wordsOf(cell.row)[1]}`, message), list];
}

function detailsOfRow(row) {
  const cells = [...columns.values()].filter((c) => c.cells.has(row)).map((c) => [c, c.cells.get(row)])
    .sort(([a, x], [b, y]) => RANK[x.state] - RANK[y.state] || byNumber(a.key, b.key));
  const list = make("dl", {});
  const { zone, pool } = places.get(row) ?? {};
  list.append(...section("Zone", ...(zone ? [zone] : [])), ...section("Pool", ...(pool ? [pool] : [])));
  list.append(...section("LocalServices", ...cells.map(([c, cell]) => [
    link({ column: c.key, row }, shape(cell.state), called(c)), make("small", {}, describe(c, row)[1])])));
  if (!isGroup(row) && !scope.notice) { // Otherwise the user may not read nodes.
    list.append(...section("Commands", copyable(command("describe", "node", row)),
      copyable(command("get", "pods", "-A", "-o", "wide", "--field-selector", "spec.nodeName=" + row))));
  }
  return [...title(cells[0]?.[1].state, wordsOf(row).filter(Boolean).join(" ")), list];
}

function detailsOfColumn(column) {
  const state = column.problem ? "Problem" : STATES.find((s) => column.counts[s] > 0);
  const list = make("dl", {}), ns = ["-n", column.namespace];
  list.append(...section("Nodes", String(column.nodes)), ...section("Answering", answering(column)),
    ...section("Status", column.status || "not set yet"), ...section("Mode", column.mode));
  if (column.groupBy) list.append(...section("Grouped by", column.groupBy));
  list.append(...section("Commands", copyable(command("localservice", "nodes", column.name, ...ns)),
    copyable(command("describe", "localservice", ...ns, column.name))));
  return [...withNotices(column, state, column.key, column.problem), list];
}

function closeDetails() {
  selected = null;
  details.hidden = true;
  version++;
  ($("grid").hidden ? map : grid).focus();
  schedule(false);
  keepInAddress();
}

function showTip(e) {
  const column = columns.get(e?.column);
  if (!column) return void (tip.hidden = true);
  const [title, text] = e.row ? describe(column, e.row) : [column.key,
    [`${answering(column)} answering`, column.status, column.problem, textOf(noticesOf(column))].filter(Boolean)
      .join(". ")];
  const notice = e.row && column.cells.has(e.row) && noticeOf(column, column.cells.get(e.row));
  showTipAt(title, [text, ...(notice ? [notice.message] : [])], e.getBoundingClientRect());
}

function showTipAt(title, lines, box) {
  tip.replaceChildren(make("b", {}, title), ...lines.map((line) => make("div", {}, line)));
  tip.hidden = false;
  const own = tip.getBoundingClientRect();
  const below = box.bottom + 6 + own.height < innerHeight;
  tip.style.left = Math.max(8, Math.min(box.left, innerWidth - own.width - 8)) + "px";
  tip.style.top = (below ? box.bottom + 6 : Math.max(8, box.top - own.height - 6)) + "px";
}
