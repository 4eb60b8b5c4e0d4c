// The page of anomalies: look through pictures, mark them, and see what another threshold would do.
import { byId, make } from "./dom.js";
import { embedded, smallPicture } from "./review_data.js";
import { showDetail } from "./review_detail.js";
import { Grid } from "./review_grid.js";
import { MARKS, Marks } from "./review_marks.js";
import { countAbove, histogram, meaning, plural, showCommand, steps } from "./review_threshold.js";

/** @type {import("./review_data.js").Findings} */
const data = embedded("data");
const marks = new Marks(`whatwhere anomalies ${data.folder}`, new Set(data.names));
const scale = steps([...data.scores, ...(data.normal ?? [])], data.threshold);
const moveLine = histogram(data);
const slider = byId("threshold", HTMLInputElement);
const show = byId("show", HTMLSelectElement);
const order = byId("order", HTMLSelectElement);
const SHORT = new Map([["defect", "defect"], ["false alarm", "false"], ["not sure", "unsure"]]);
const KEYS = new Map([["d", "defect"], ["f", "false alarm"], ["n", "not sure"], ["x", ""], ["Delete", ""]]);
let threshold = data.threshold;
let chosen = 0;

/** Whether a row of the data is shown. @type {Record<string, (row: number) => boolean>} */
const FILTERS = {
  all: () => true,
  alarms: (row) => data.scores[row] > threshold,
  rest: (row) => data.scores[row] <= threshold,
  unmarked: (row) => !marks.given.has(data.names[row]),
  marked: (row) => marks.given.has(data.names[row]),
};

/** @type {Record<string, (a: number, b: number) => number>} */
const ORDERS = {
  score: (a, b) => a - b,
  near: (a, b) => Math.abs(data.scores[a] - threshold) - Math.abs(data.scores[b] - threshold) || a - b,
  name: (a, b) => (data.names[a] < data.names[b] ? -1 : 1),
};

const grid = new Grid({ draw: drawCell, choose });

/** The button of a picture. @param {number} row */
function drawCell(row) {
  const name = data.names[row];
  const mark = marks.given.get(name);
  const alarm = data.scores[row] > threshold;
  const [picture, map] = smallPicture(data, row);
  const views = make("span", { class: "thumb" }, make("img", { src: picture, alt: "" }));
  if (map) views.append(make("img", { src: map, alt: "", class: "over" }));
  if (mark) views.append(make("span", { class: `badge ${SHORT.get(mark)}` }, mark));
  const button = make(
    "button",
    { class: alarm ? "cell alarm" : "cell", onclick: () => choose(row, true) },
    views,
    make("span", { class: "name" }, name),
    make("span", { class: "value" }, `${data.scores[row].toFixed(2)}${alarm ? " alarm" : ""}`),
  );
  button.dataset.row = String(row);
  button.tabIndex = row === chosen ? 0 : -1;
  if (row === chosen) button.setAttribute("aria-current", "true");
  return button;
}

/** Choose a picture. @param {number} row @param {boolean} [focus] also move the focus to it */
function choose(row, focus = false) {
  const before = grid.button(chosen);
  before?.removeAttribute("aria-current");
  if (before) before.tabIndex = -1;
  chosen = row;
  grid.reveal(row);
  const button = grid.button(row);
  button?.setAttribute("aria-current", "true");
  if (button) button.tabIndex = 0;
  if (focus) button?.focus({ preventScroll: true });
  showDetail(data, row, threshold);
  showMark();
}

function showMark() {
  const mark = marks.given.get(data.names[chosen]) ?? "";
  for (const button of document.querySelectorAll("#mark-buttons button"))
    if (button instanceof HTMLElement) button.setAttribute("aria-pressed", String(button.dataset.mark === mark));
}

function showCounts() {
  const alarms = countAbove(data.scores, threshold);
  const one = data.scores.length === 1;
  byId("title", HTMLElement).textContent = one
    ? `The picture is ${alarms ? "above" : "not above"} the threshold`
    : `${alarms.toLocaleString("en")} of ${plural(data.scores.length, "picture")} ${alarms === 1 ? "is" : "are"} above the threshold`;
  byId("counts", HTMLElement).textContent = meaning(data, threshold, marks.given);
  const moved = byId("threshold-command", HTMLElement);
  const rate = data.normal ? (countAbove(data.normal, threshold) + 1) / (data.normal.length + 1) : 1;
  // the command line takes no rate above one half
  moved.hidden = threshold === data.threshold || rate > 0.5 || !data.scoreCommand;
  if (!moved.hidden) showCommand(moved, "This threshold on the command line: ", `${data.scoreCommand} --false-alarms ${rate.toFixed(4)}`);
  const counts = MARKS.map((mark) => `${marks.count(mark)} ${mark}`);
  const any = marks.given.size > 0;
  if (any) byId("marked", HTMLElement).textContent = `${plural(marks.given.size, "picture")} marked: ${counts.join(", ")}.`;
  else if (marks.history.length) byId("marked", HTMLElement).textContent = "Nothing is marked.";
  byId("save", HTMLButtonElement).disabled = !any;
  byId("undo", HTMLButtonElement).disabled = !marks.history.length;
  const fitted = byId("marks-command", HTMLElement);
  fitted.hidden = !any;
  showCommand(fitted, "Fit again with them: false alarms become normal pictures, and defects set the threshold. ", data.fitCommand);
}

/** Show what the filter and the order ask for; the chosen picture stays if it is among them. */
function list() {
  const rows = data.names.map((_, row) => row).filter(FILTERS[show.value]).sort(ORDERS[order.value]);
  byId("shown", HTMLElement).textContent = rows.length === data.names.length ? "" : `${plural(rows.length, "picture")} shown`;
  grid.show(rows);
  if (rows.length && !rows.includes(chosen)) {
    grid.frame.scrollTop = 0;
    choose(rows[0]);
  }
}

/** @param {string} mark */
function give(mark) {
  if (!grid.rows.length) return;
  const at = grid.rows.indexOf(chosen);
  const next = grid.rows[Math.min(at + 1, grid.rows.length - 1)];
  const inGrid = grid.list.contains(document.activeElement) || document.activeElement === document.body;
  marks.give(data.names[chosen], mark);
  list();
  choose(grid.rows.includes(next) ? next : chosen, inGrid);
  showCounts();
}

function undo() {
  const name = marks.undo();
  if (name === null) return;
  list();
  const row = data.names.indexOf(name);
  if (grid.rows.includes(row)) choose(row);
  showMark();
  showCounts();
}

function save() {
  const link = make("a", { href: URL.createObjectURL(new Blob([marks.table(data.folder)], { type: "text/csv" })), download: "marks.csv" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** @param {number} step of the slider */
function moveTo(step) {
  threshold = scale.values[step];
  slider.value = String(step);
  slider.setAttribute("aria-valuetext", `threshold ${threshold.toFixed(2)}`);
  moveLine(threshold);
  showCounts();
  if (show.value === "all" && order.value !== "near") grid.redraw();
  else list();
  showDetail(data, chosen, threshold);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const on = event.target;
  const mark = KEYS.get(event.key);
  if (on instanceof HTMLSelectElement) return; // letters choose an option there
  if (mark !== undefined) give(mark);
  else if (event.key === "u") undo();
  else if (on instanceof HTMLInputElement) return; // arrows move the slider
  else {
    const row = grid.towards(event.key, chosen);
    if (row === chosen) return;
    choose(row, true);
  }
  event.preventDefault();
});
for (const button of document.querySelectorAll("#mark-buttons button"))
  if (button instanceof HTMLElement) button.addEventListener("click", () => give(button.dataset.mark ?? ""));
slider.max = String(scale.values.length - 1);
slider.addEventListener("input", () => moveTo(Number(slider.value)));
byId("reset", HTMLElement).addEventListener("click", () => moveTo(scale.own));
byId("undo", HTMLElement).addEventListener("click", undo);
byId("save", HTMLElement).addEventListener("click", save);
for (const select of [show, order]) select.addEventListener("change", list);

byId("rates", HTMLElement).textContent = data.rates;
byId("learned", HTMLElement).textContent = data.learned;
byId("outline-words", HTMLElement).textContent = data.outline;
byId("scale-low", HTMLElement).textContent = data.outline;
byId("scale-high", HTMLElement).textContent = data.beyond;
for (const [kind, words] of Object.entries(data.kinds))
  byId("kinds", HTMLElement).append(make("div", {}, make("dt", {}, kind), ": ", make("dd", {}, words)));
list();
choose(0);
moveTo(scale.own);
document.body.setAttribute("aria-busy", "false");
