// The map: a small square for each node, in groups by zone or pool. It shows the worst that is on the node.
"use strict";

const map = $("map");
const SMALLEST = 6, LARGEST = 26; // pixels, of a square with its gap
const NAMED = 50; // nodes from which on the squares have no names
let sections = [], across = 0, pitch = 0; // { name, rows, element, canvas }; squares in a row; size with the gap
let step = 0; // from one square to the next: more than pitch if there are names between them
let target = ""; // the row under the pointer, or at the keyboard

const placeOf = (row, by) => (isGroup(row) ? "Groups of nodes" : by === "none" ? "" : places.get(row)?.[by] ?? "");

// by is what the nodes are grouped by: what is chosen, or what they have.
function by() {
  if ($("place").value) return $("place").value;
  const all = [...places.values()];
  return all.some((p) => p.zone) ? "zone" : all.some((p) => p.pool) ? "pool" : "none";
}

function drawMap() {
  const groups = new Map(), how = by();
  for (const row of order.filter((row) => shown.worst.has(row))) {
    const name = placeOf(row, how);
    groups.has(name) ? groups.get(name).push(row) : groups.set(name, [row]);
  }
  const before = new Map(sections.map((s) => [s.name, s]));
  const rank = (s) => (isGroup(s.rows[0]) ? 0 : s.name ? 1 : 2); // Those without a place come last.
  sections = [...groups].map(([name, rows]) => Object.assign(before.get(name) ?? newSection(name), { rows }))
    .sort((a, b) => rank(a) - rank(b) || byNumber(a.name, b.name));
  const elements = sections.map((s) => s.element);
  if (elements.length !== map.childElementCount || elements.some((e, i) => map.children[i] !== e)) {
    map.replaceChildren(...elements);
  }
  fit();
  const look = getComputedStyle(map);
  const colours = Object.fromEntries(STATES.map((s) => [s, look.getPropertyValue("--map-" + s.toLowerCase())]));
  for (const s of sections) drawSection(s, how, colours, look);
  const counts = STATES.map((s) => [s, [...shown.worst.values()].filter((rank) => rank === RANK[s]).length]);
  map.ariaLabel = `Map of ${plural(shown.worst.size, "node")}: ` + counts.map(([s, n]) => `${n} ${s}`).join(", ");
}

function newSection(name) {
  const canvas = make("canvas", {});
  return { name, canvas, element: make("section", {}, make("h2", {}), canvas) };
}

// fit makes the squares as large as they can be with all of them on the screen.
function fit() {
  const [room, high] = [map.clientWidth - 28, map.clientHeight - 16];
  if (shown.worst.size < NAMED) {
    const longest = Math.max(0, ...sections.flatMap((s) => s.rows.map((row) => wordsOf(row)[1].length)));
    pitch = LARGEST;
    step = Math.min(room, pitch + 20 + 7.5 * longest);
    across = Math.max(1, Math.floor(room / step));
    return;
  }
  for (pitch = LARGEST; pitch > SMALLEST; pitch--) {
    across = Math.max(1, Math.floor(room / pitch));
    const needs = sections.reduce((sum, s) => sum + 36 + Math.ceil(s.rows.length / across) * pitch, 0);
    step = pitch;
    if (needs <= high) return;
  }
  step = pitch;
  across = Math.max(1, Math.floor(room / pitch));
}

function drawSection(s, how, colours, look) {
  const troubled = s.rows.filter((row) => shown.worst.get(row) < RANK.Healthy).length;
  const noun = isGroup(s.rows[0]) ? "group" : "node";
  const title = s.name || (how === "none" ? "Nodes" : "without a " + how);
  const heading = s.element.firstChild;
  heading.replaceChildren(title, make("small", {}, plural(s.rows.length, noun)));
  if (troubled) heading.append(make("em", {}, plural(troubled, noun) + " with problems"));
  const ratio = devicePixelRatio || 1, c = s.canvas;
  const [w, h] = [across * step, Math.ceil(s.rows.length / across) * pitch];
  c.width = w * ratio;
  c.height = h * ratio;
  place(c, { width: w, height: h });
  const g = c.getContext("2d");
  g.scale(ratio, ratio);
  const size = pitch - (pitch > 8 ? 2 : 1), ink = look.getPropertyValue("--text");
  g.font = "13px " + look.fontFamily;
  g.textBaseline = "middle";
  for (const [i, row] of s.rows.entries()) {
    const [x, y] = [(i % across) * step, Math.floor(i / across) * pitch];
    drawSquare(g, STATES[shown.worst.get(row)], x, y, size, colours);
    if (step > pitch) {
      g.fillStyle = ink;
      g.fillText(wordsOf(row)[1], x + pitch + 4, y + size / 2 + 1, step - pitch - 10);
    }
    if (row === target) {
      g.strokeStyle = ink;
      g.lineWidth = 2;
      g.strokeRect(x + 1, y + 1, size - 2, size - 2);
    }
  }
}

// drawSquare differs by shape as well as by colour: a full square, a triangle, a frame, a small square.
function drawSquare(g, state, x, y, size, colours) {
  g.fillStyle = g.strokeStyle = colours[state];
  const inset = size < 7 ? 0.5 : Math.round(size / 6);
  if (state === "Degraded") {
    g.beginPath();
    g.moveTo(x + size / 2, y);
    g.lineTo(x + size, y + size);
    g.lineTo(x, y + size);
    g.fill();
  } else if (state === "Empty") {
    g.lineWidth = 1;
    g.strokeRect(x + inset + 0.5, y + inset + 0.5, size - 2 * inset - 1, size - 2 * inset - 1);
  } else if (state === "Healthy") g.fillRect(x + inset, y + inset, size - 2 * inset, size - 2 * inset);
  else g.fillRect(x, y, size, size);
}

// rowAt is the row of the square at a point of the window.
function rowAt(event) {
  const s = sections.find((s) => s.canvas === event.target);
  if (!s) return "";
  const [c, r] = [Math.floor(event.offsetX / step), Math.floor(event.offsetY / pitch)];
  return c < across ? s.rows[r * across + c] ?? "" : "";
}

// aim makes a row the target, and says what is there.
function aim(row) {
  if (row === target) return;
  target = row;
  drawMap();
  if (!row) return void (tip.hidden = true);
  const s = sections.find((s) => s.rows.includes(row));
  if (!s) return;
  const i = s.rows.indexOf(row), box = s.canvas.getBoundingClientRect();
  const troubles = shown.columns.filter((c) => c.cells.has(row) && passes(c, c.cells.get(row)))
    .sort((a, b) => RANK[a.cells.get(row).state] - RANK[b.cells.get(row).state])
    .filter((c) => c.cells.get(row).state !== "Healthy");
  const lines = troubles.slice(0, 4).map((c) => `${called(c)}: ${describe(c, row)[1]}`);
  if (troubles.length > 4) lines.push(`and ${troubles.length - 4} more`);
  const [x, y] = [box.left + (i % across) * step, box.top + Math.floor(i / across) * pitch];
  const text = lines.length ? lines : ["every name answers"];
  showTipAt(wordsOf(row).filter(Boolean).join(" "), text, { left: x, top: y, bottom: y + pitch });
}

map.addEventListener("pointermove", (event) => aim(rowAt(event)));
for (const type of ["pointerleave", "blur"]) map.addEventListener(type, () => aim(""));
map.addEventListener("click", (event) => rowAt(event) && showDetails({ column: "", row: rowAt(event) }));
map.addEventListener("keydown", (event) => {
  const all = sections.flatMap((s) => s.rows), at = all.indexOf(target);
  const steps = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - across,
    ArrowDown: at < 0 ? 0 : at + across, Home: 0, End: all.length - 1 };
  if (event.key in steps) {
    const row = all[Math.max(0, Math.min(all.length - 1, steps[event.key]))];
    if (!row) return;
    const s = sections.find((s) => s.rows.includes(row));
    const y = s.canvas.offsetTop + Math.floor(s.rows.indexOf(row) / across) * pitch;
    map.scrollTop = Math.max(y + 2 * pitch - map.clientHeight, Math.min(y - 30, map.scrollTop));
    aim(row);
  } else if ((event.key === "Enter" || event.key === " ") && target) showDetails({ column: "", row: target });
  else return;
  event.preventDefault();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => schedule(false));
