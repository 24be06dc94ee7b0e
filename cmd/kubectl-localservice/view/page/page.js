// What is around the table and the map: problems, filters, the address, and the connection.
"use strict";

const token = location.hash.slice(1);
const MANY = 150; // rows from which on the map says more than the table
let lost = ""; // why nothing is heard
let view = ""; // what was chosen: table or map

let scheduled = false, stale = false;
function schedule(changed) {
  stale ||= changed;
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    const changed = stale;
    if (stale) filter(), version++;
    stale = false;
    if (isOutdated && watching.loaded) showDetails({ ...selected });
    const wantsMap = (view || (rows.size > MANY ? "map" : "table")) === "map";
    if (grid.hidden !== wantsMap) grid.hidden = wantsMap, map.hidden = !wantsMap;
    $("by").hidden = !wantsMap;
    if (changed) drawAround(); // Before the others: it takes room.
    wantsMap ? drawMap() : (measure(), drawTables());
    if (toBring && (watching.loaded || lost)) bring(toBring), (toBring = null);
    if (!changed) drawConnection();
  });
}

function drawAround() {
  $("scope").textContent = [scope.context, scope.namespace ? "namespace " + scope.namespace : "all namespaces",
    scope.name, scope.notice].filter(Boolean).join(" · ");
  const of = (some, all, noun) => (some === all ? "" : some.toLocaleString("en") + " of ") + plural(all, noun);
  const groups = [...rows.keys()].filter(isGroup).length, shownGroups = shown.rows.filter(isGroup).length;
  $("count").textContent = [
    of(shown.rows.length - shownGroups, rows.size - groups, "node"),
    groups ? of(shownGroups, groups, "group") : "",
    of(shown.columns.length, columns.size, "LocalService"),
  ].filter(Boolean).join(" · ");
  for (const button of $("states").children) {
    button.lastChild.textContent = shown.counts[button.value].toLocaleString("en");
    button.ariaPressed = String(wanted.has(button.value));
  }
  const now = map.hidden ? "table" : "map";
  for (const button of $("views").children) button.ariaPressed = String(button.value === now);
  for (const option of $("place").options) {
    option.disabled = option.value !== "none" && ![...places.values()].some((p) => p[option.value]);
  }
  if (!chosenPlace) {
    $("place").value = "";
    $("place").value = by();
  }
  drawCauses();
  drawConnection();
  keepInAddress();
}

function drawConnection() {
  const nothing = lost && columns.size === 0 ? "" : !watching.loaded ? "Reading the cluster …" :
    columns.size === 0 ? watching.nothing ?? "" :
    shown.rows.length === 0 && (rows.size > 0 || shown.columns.length === 0) ? "Nothing matches the filters." : "";
  $("nothing").textContent = nothing;
  $("nothing").hidden = !nothing;
  const problems = lost ? [lost] : watching.problems;
  const lines = [...problems, lost ? "" : watching.controller].filter(Boolean);
  $("problems").hidden = lines.length === 0;
  if ($("problems").textContent !== lines.join("")) {
    $("problems").replaceChildren(...lines.map((p) => make("li", {}, p)));
  }
  const live = lost ? ["lost", "Not connected"] : problems.length ? ["lost", "Out of date"] :
    watching.loaded ? ["yes", "Live"] : ["no", "Connecting"];
  if ($("live").textContent !== live[1]) [$("live").dataset.live, $("live").textContent] = live;
}

// some names the first few, and counts the rest.
function some(items, number, all = items.length) {
  const more = all - number;
  return items.slice(0, number).join(", ") + (more > 0 ? ` and ${more.toLocaleString("en")} more` : "");
}

// rowsOf names some of the rows of a cause, which are in order: a few that are not too long.
function rowsOf(cause) {
  const first = [];
  for (const row of cause.rows) {
    if (first.length === 3 || first.join().length > 24) break;
    first.push(wordsOf(row)[1]);
  }
  return some(first, first.length, cause.rows.size);
}

const few = () => (PHONE.matches ? 2 : 5); // causes that are shown before somebody asks for more
let allCauses = false;
function drawCauses() {
  const where = shown.causes.map(rowsOf);
  const shownCauses = JSON.stringify([wantedCause, allCauses, watching.loaded, shown.causes.map((c) =>
    [c.key, c.count, c.message, c.isExample, c.isSum, c.isOpen, [...c.columns].map(([k, n]) => [k.key, n])]), where]);
  if ($("causes").shown === shownCauses) return;
  $("causes").shown = shownCauses;
  const lines = shown.causes.map((cause, i) => {
    const names = [...cause.columns].sort((a, b) => b[1] - a[1])
      .map(([c, n]) => called(c) + (n === 1 ? "" : ` (${n.toLocaleString("en")})`));
    const text = (className, text) => (text ? [make("span", { className }, text), " "] : []);
    const [first] = cause.columns.keys(), [row] = cause.rows, isWhole = cause.isWhole && !cause.isSum;
    const message = cause.isOpen ? "" : cause.message && (cause.isSum ? called(first) + ": " : "") + cause.message;
    const note = cause.isOpen ? "" : cause.isSum ? "others differ: click" :
      cause.isExample && `(${wordsOf(row)[1]}, for example)`;
    const button = make("button", { type: "button", ariaPressed: String(cause.key === wantedCause),
      className: cause.isPart ? "part" : "" },
      shape(cause.state),
      make("b", {}, cause.isCommon ? "Cluster" : plural(cause.count, where[i] ? "name" : "LocalService")),
      make("span", {}, ...text("what", isWhole ? "" : cause.text), ...text(isWhole ? "whole" : "message", message),
        ...text("note", note)),
      make("span", {}, ...text("who", cause.isCommon ? "" : some(names, 4)), ...text("where", where[i])));
    button.dataset.state = cause.state;
    button.addEventListener("click", () => {
      if (!where[i] && cause.count === 1) return showDetails({ column: first.key, row: "" });
      wantedCause = cause.key === wantedCause ? "" : cause.key;
      schedule(true);
    });
    return make("li", {}, button);
  });
  const more = lines.length - few();
  if (more > 1) { // One more takes no more room than the button.
    const isWanted = shown.causes.findIndex((cause) => cause.key === wantedCause) >= few();
    const all = allCauses || isWanted;
    if (!all) lines.length = few();
    const button = make("button", { type: "button", className: "more", ariaExpanded: String(all) },
      all ? "Show fewer" : `${more.toLocaleString("en")} more problems`);
    button.addEventListener("click", () => ((allCauses = !all), schedule(true)));
    lines.push(make("li", {}, button));
  }
  $("causes").hidden = lines.length === 0;
  $("causes").replaceChildren(make("ol", {}, ...lines));
}

// The address keeps the filters, and what is open: it can be kept, reloaded and sent to oneself while the command runs.
// The query is sent to the command only; the token stays in the fragment, which is sent to nobody.

let chosenPlace = false;
function keepInAddress() {
  const q = new URLSearchParams();
  const set = (name, value) => value && q.set(name, value);
  set("name", $("by-name").value);
  set("node", $("by-node").value);
  set("state", [...wanted].join(","));
  set("cause", wantedCause);
  set("view", view);
  set("by", chosenPlace && $("place").value);
  set("column", (selected ?? toOpen)?.column);
  set("row", (selected ?? toOpen)?.row);
  const query = q.size ? "?" + q : location.pathname;
  if (query !== (location.search || location.pathname)) history.replaceState(null, "", query + location.hash);
}

let toOpen = null; // details that the address asks for, once they are there
function readAddress() {
  const q = new URLSearchParams(location.search);
  $("by-name").value = q.get("name") ?? "";
  $("by-node").value = q.get("node") ?? "";
  for (const state of q.get("state")?.split(",") ?? []) if (state in RANK) wanted.add(state);
  wantedCause = q.get("cause") ?? "";
  view = ["table", "map"].find((v) => v === q.get("view")) ?? "";
  chosenPlace = ["zone", "pool", "none"].includes(q.get("by"));
  $("place").value = chosenPlace ? q.get("by") : "";
  if (q.has("column") || q.has("row")) toOpen = { column: q.get("column") ?? "", row: q.get("row") ?? "" };
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target.tagName === "INPUT") (map.hidden ? grid : map).focus();
  else if (event.key === "Escape") selected ? closeDetails() : (tip.hidden = true);
  else if (event.key === "/" && event.target.tagName !== "INPUT") $("by-name").focus(), event.preventDefault();
});
new ResizeObserver(() => schedule(false)).observe(document.querySelector("main"));
for (const id of ["by-name", "by-node"]) $(id).addEventListener("input", () => schedule(true));
$("place").addEventListener("change", () => ((chosenPlace = true), schedule(true)));
for (const button of $("views").children) {
  button.addEventListener("click", () => ((view = button.value), schedule(true)));
}
for (const state of ["Healthy", "Degraded", "Down", "Empty"]) {
  const button = make("button", { type: "button", value: state, ariaPressed: "false" }, shape(state), make("span", {}, state),
    make("b", {}, "0"));
  button.dataset.state = state;
  button.addEventListener("click", () => {
    wanted.delete(state) || wanted.add(state);
    wantedCause = "";
    schedule(true);
  });
  $("states").append(button);
}
readAddress();

const events = new EventSource("events?" + new URLSearchParams({ token }));
events.onopen = () => ((lost = ""), schedule(false));
events.onmessage = (event) => {
  apply(JSON.parse(event.data));
  if (toOpen && watching.loaded) {
    schedule(true);
    showDetails(toOpen);
    toOpen = null;
  }
};
events.onerror = () => {
  lost = events.readyState === EventSource.CLOSED ?
    "Open the address that kubectl localservice view has printed, all of it: an old one, or a part, shows nothing." :
    "Not connected to kubectl localservice view, trying again: has it ended? What is shown may be out of date.";
  schedule(false);
};
