// The page of a recording: zoom, go to events, accept or reject them, save the table.

import { byId } from "./dom.js";
import { addEvent, extremes, unpackSamples } from "./recording_data.js";

/** @typedef {import("./recording_data.js").Row} Row */

const data = JSON.parse(byId("data", HTMLScriptElement).textContent ?? "{}");
/** @type {Row[]} */
const rows = data.rows;
/** @type {Float32Array[]} */
const channels = data.channels.map(unpackSamples);
/** @type {Float32Array[]} */
const left = data.targets.map(unpackSamples);
const length = channels[0].length;
const rejected = new Set();
/** @type {{ row: number, was: boolean }[]} */
const history = [];
const view = { from: 0, to: length };
let chosen = -1;
const canvas = byId("plot", HTMLCanvasElement);
const colours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c5a00", "#5d3a9b"];
const MOST_NUMBERS = 60; // in view; more would cover each other
let crowded = 0;
const MARGIN = { left: 56, right: 10, bottom: 24 };

for (const row of rows) addEvent(left, data.waveforms[row.waveform], row, -1);

/** @param {number} sample */
function timeOf(sample) {
  return data.rate ? `${(data.start + sample / data.rate).toFixed(Math.max(0, Math.ceil(Math.log10(data.rate))))} s` : `${sample.toFixed(0)}`;
}

/** @param {number} sample @param {number} width */
function placeOf(sample, width) {
  return MARGIN.left + ((sample - view.from) / (view.to - view.from)) * width;
}

/** Draw everything that is in view. */
function draw() {
  const context = canvas.getContext("2d");
  if (!context) return;
  const ratio = window.devicePixelRatio || 1;
  const full = { width: canvas.clientWidth, height: canvas.clientHeight };
  canvas.width = full.width * ratio;
  canvas.height = full.height * ratio;
  context.scale(ratio, ratio);
  const style = getComputedStyle(canvas);
  const ink = style.color;
  const width = full.width - MARGIN.left - MARGIN.right;
  const height = (full.height - MARGIN.bottom) / channels.length;
  crowded = rows.filter((row) => row.sample >= view.from && row.sample <= view.to).length;
  context.font = `12px ${style.fontFamily}`;
  channels.forEach((samples, c) => {
    const top = c * height;
    const shown = extremes(samples, view.from, view.to, Math.max(1, Math.floor(width)));
    const rest = extremes(left[c], view.from, view.to, Math.max(1, Math.floor(width)));
    const low = Math.min(...shown.low.filter((v) => !Number.isNaN(v)));
    const high = Math.max(...shown.high.filter((v) => !Number.isNaN(v)));
    const span = high - low || 1;
    const scale = (0.6 * height) / span;
    trace(context, shown, (v) => top + 0.12 * height + (high - v) * scale, ink);
    trace(context, rest, (v) => top + 0.87 * height - v * scale, "#8c8c8c");
    context.fillStyle = ink;
    context.textAlign = "right";
    context.fillText(data.names[c], MARGIN.left - 6, top + 0.4 * height);
    rows.forEach((row, n) => {
      if (row.channel === c && row.sample >= view.from && row.sample <= view.to) mark(context, n, placeOf(row.sample, width), top + 0.06 * height);
    });
  });
  context.fillStyle = ink;
  for (let k = 0; k <= 4; k++) {
    context.textAlign = k === 0 ? "left" : k === 4 ? "right" : "center";
    context.fillText(timeOf(view.from + ((view.to - view.from) * k) / 4), MARGIN.left + (width * k) / 4, full.height - 8);
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {{ low: Float32Array, high: Float32Array }} shown
 * @param {(value: number) => number} y
 * @param {string} colour
 */
function trace(context, shown, y, colour) {
  context.strokeStyle = colour;
  context.beginPath();
  let open = false;
  shown.low.forEach((low, x) => {
    if (Number.isNaN(low)) { open = false; return; }
    const at = MARGIN.left + x + 0.5;
    if (open) context.lineTo(at, y(shown.high[x])); else context.moveTo(at, y(shown.high[x]));
    context.lineTo(at, y(low));
    open = true;
  });
  context.stroke();
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} n
 * @param {number} x
 * @param {number} y
 */
function mark(context, n, x, y) {
  const row = rows[n];
  const colour = rejected.has(n) ? "#8c8c8c" : colours[row.waveform % colours.length];
  context.strokeStyle = colour;
  context.fillStyle = colour;
  context.lineWidth = n === chosen ? 3 : 1.5;
  context.beginPath();
  if (rejected.has(n)) {
    for (const side of [-1, 1]) { context.moveTo(x - 4, y - 4 * side); context.lineTo(x + 4, y + 4 * side); }
  } else {
    context.arc(x, y, 4, 0, 2 * Math.PI);
    if (!row.doubtful) context.fill();
  }
  context.stroke();
  if (n === chosen) context.strokeRect(x - 8, y - 8, 16, 16);
  context.lineWidth = 1;
  context.textAlign = "left";
  if (crowded <= MOST_NUMBERS || n === chosen) context.fillText(String(row.waveform), x + 7, y + 4);
}

/** Say what is chosen, and how many events are accepted. */
function tell() {
  const kept = `${rows.length - rejected.size} of ${rows.length} events accepted`;
  const row = rows[chosen];
  const words = row ? `Event ${chosen + 1} at ${timeOf(row.sample)}, waveform ${row.waveform}${row.doubtful ? ", doubtful" : ""}${rejected.has(chosen) ? ", rejected" : ""}. ` : "";
  byId("chosen", HTMLElement).textContent = words + kept;
  byId("undo", HTMLButtonElement).disabled = history.length === 0;
}

/** @param {number} from @param {number} to */
function show(from, to) {
  const size = Math.min(length, Math.max(16, to - from));
  view.from = Math.min(Math.max(0, from), length - size);
  view.to = view.from + size;
  draw();
}

/** @param {number} n */
function choose(n) {
  if (n < 0 || n >= rows.length) return;
  chosen = n;
  const size = Math.min(view.to - view.from, 40 * data.length);
  show(rows[n].sample - size / 2, rows[n].sample + size / 2);
  tell();
}

/** @param {boolean} reject */
function decide(reject) {
  if (chosen < 0 || rejected.has(chosen) === reject) return;
  history.push({ row: chosen, was: !reject });
  set(chosen, reject);
}

/** @param {number} n @param {boolean} reject */
function set(n, reject) {
  if (reject) rejected.add(n); else rejected.delete(n);
  addEvent(left, data.waveforms[rows[n].waveform], rows[n], reject ? 1 : -1);
  draw();
  tell();
}

function undo() {
  const last = history.pop();
  if (!last) return;
  chosen = last.row;
  set(last.row, last.was);
}

function nextDoubtful() {
  for (let k = 1; k <= rows.length; k++) {
    const n = (chosen + k + rows.length) % rows.length;
    if (rows[n].doubtful) { choose(n); return; }
  }
  byId("chosen", HTMLElement).textContent = "No event is doubtful: each explains most of its place, and none overlaps another one.";
}

function save() {
  const kept = rows.filter((_, n) => !rejected.has(n)).map((row) => row.line);
  const file = new Blob([[data.heading, ...kept].join("\n") + "\n"], { type: "text/csv" });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = "events.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** @param {number} factor @param {number} [share] */
function zoom(factor, share = 0.5) {
  const size = view.to - view.from;
  const fixed = view.from + share * size;
  show(fixed - share * size * factor, fixed + (1 - share) * size * factor);
}

/** @type {Record<string, () => void>} */
const keys = {
  d: nextDoubtful,
  n: () => choose(chosen + 1),
  p: () => choose(chosen - 1),
  r: () => decide(true),
  a: () => decide(false),
  u: undo,
  ArrowLeft: () => show(view.from - (view.to - view.from) / 4, view.to - (view.to - view.from) / 4),
  ArrowRight: () => show(view.from + (view.to - view.from) / 4, view.to + (view.to - view.from) / 4),
  "+": () => zoom(0.5),
  "=": () => zoom(0.5),
  "-": () => zoom(2),
  0: () => show(0, length),
};
document.addEventListener("keydown", (event) => {
  const act = keys[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act();
});
for (const [id, key] of [["doubtful", "d"], ["next", "n"], ["previous", "p"], ["reject", "r"], ["accept", "a"], ["undo", "u"]]) {
  byId(id, HTMLButtonElement).addEventListener("click", () => keys[key]());
}
byId("save", HTMLButtonElement).addEventListener("click", save);
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoom(event.deltaY > 0 ? 1.25 : 0.8, (event.offsetX - MARGIN.left) / (canvas.clientWidth - MARGIN.left - MARGIN.right));
}, { passive: false });
let dragged = false;
canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); dragged = false; });
canvas.addEventListener("pointermove", (event) => {
  if (!event.buttons || !event.movementX) return;
  dragged = true;
  const moved = (event.movementX / (canvas.clientWidth - MARGIN.left - MARGIN.right)) * (view.to - view.from);
  show(view.from - moved, view.to - moved);
});
canvas.addEventListener("click", (event) => {
  if (dragged) return;
  const width = canvas.clientWidth - MARGIN.left - MARGIN.right;
  const near = rows.map((row, n) => ({ n, far: Math.abs(placeOf(row.sample, width) - event.offsetX) })).filter((one) => one.far < 8);
  near.sort((a, b) => a.far - b.far);
  if (near.length) { chosen = near[0].n; draw(); tell(); }
});
window.addEventListener("resize", draw);
byId("title", HTMLElement).textContent = data.title;
byId("about", HTMLElement).textContent = data.about;
document.title = data.title;
show(0, Math.min(length, 60 * data.length));
tell();
document.body.setAttribute("aria-busy", "false");
