// The labelling page: what is chosen, what is said, and the panels that show it. The server has the session; tabs follow it.
import { byId, make, styled } from "./dom.js";
import { mapPanel } from "./label_map.js";
import { showReasons } from "./label_why.js";
import { css, featureColours } from "./pictures.js";

/**
 * What the page knows.
 * @typedef {object} Shared
 * @property {{ name: string, side: number, columns: number, perSheet: number, notSure: string }} page
 * @property {string[]} names of the pictures
 * @property {number[][]} places on the map, from 0 to 1
 * @property {string[]} classes
 * @property {number[]} best class of every picture, -1 for none
 * @property {number[]} certainty in %
 * @property {Record<string, number | string>} said class by row, or "not sure"
 * @property {number[]} tray
 * @property {number} undo actions that can be undone
 * @property {number} revision
 * @property {Set<number>} chosen rows
 * @property {number} current the row chosen last, -1 for none
 * @property {HTMLImageElement[]} sheets of small pictures
 */

const PER_PAGE = 120;
const POLL = 1500; // milliseconds between looks at what another tab did
/** @type {Shared} */ const shared = {
  page: JSON.parse(byId("data", HTMLElement).textContent ?? ""),
  names: [], places: [], classes: [], best: [], certainty: [], said: {}, tray: [], undo: 0, revision: -1,
  chosen: new Set(), current: -1, sheets: [],
};
let armed = -1; // the class that a click gives while no picture is chosen
let [gridStart, view, anchor] = [0, "map", -1];
/** @type {string[]} */ const typed = []; // classes that have a name but no picture yet
const redrawMap = mapPanel(shared, choose);

/** "None of these" comes last, so that a class keeps its digit. */
const allClasses = () => [...shared.classes.slice(1), ...typed.filter((name) => !shared.classes.includes(name)), ...(shared.best.includes(0) ? [shared.classes[0]] : [])];
/** @param {string} name */
const hueOf = (name) => featureColours(Math.max(10, shared.classes.length + typed.length))[[...shared.classes, ...typed].indexOf(name)] ?? [0.5, 0.5, 0.5];
/** @param {string} text */
const tell = (text) => { byId("message", HTMLElement).textContent = text; };

/** Ask the server. @param {string} path @param {object} [body] */
async function ask(path, body) {
  const how = body ? { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) } : {};
  try {
    const answer = await (await fetch(path, how)).json();
    if (answer.failed) tell(answer.failed);
    return answer;
  } catch {
    tell("The program does not answer: it was ended, or is busy. What was said is in the table of labels.");
    return { failed: true };
  }
}

/** Say what rows are; null takes a label away. @param {number[]} rows @param {string | null} name */
async function say(rows, name) {
  if (rows.length === 0) return;
  const fromTray = shared.tray.includes(rows[0]);
  document.body.setAttribute("aria-busy", "true");
  const state = await ask("label", { rows, name });
  if (!state.failed) {
    tell("");
    take(state);
    if (fromTray) choose([shared.tray[0]]);
    void estimate();
  }
  document.body.setAttribute("aria-busy", "false");
}

/** Use a new state. @param {any} state */
function take(state) {
  for (const [name, value] of Object.entries(state)) if (value !== null) /** @type {any} */ (shared)[name] = value;
  show();
}

/** Choose pictures, or label them if a class is pressed. @param {number[]} rows @param {boolean} [add] */
function choose(rows, add = false) {
  if (armed >= 0 && rows.length > 0) {
    void say(rows, allClasses()[armed]);
    return;
  }
  if (!add) shared.chosen.clear();
  for (const row of rows) if (row !== undefined) shared.chosen.add(row);
  shared.current = rows[rows.length - 1] ?? shared.current;
  if (shared.chosen.size === 0) shared.current = -1;
  byId("reasons", HTMLElement).replaceChildren();
  show();
}

/** What a picture is, in words. @param {number} row */
function words(row) {
  const said = shared.said[row];
  if (said === shared.page.notSure) return `${shared.names[row]}: not sure`;
  if (said !== undefined) return `${shared.names[row]}: ${shared.classes[Number(said)]}, as you said`;
  if (shared.best[row] < 0) return `${shared.names[row]}: no class yet`;
  return `${shared.names[row]}: ${shared.classes[shared.best[row]]}, ${shared.certainty[row]} %`;
}

/** Draw a small picture. @param {CanvasRenderingContext2D} context @param {number} row @param {number} x @param {number} y @param {number} side */
function drawSmall(context, row, x, y, side) {
  const { side: from, columns, perSheet } = shared.page;
  const image = shared.sheets[Math.floor(row / perSheet)];
  const place = row % perSheet;
  if (image?.complete && image.naturalWidth) context.drawImage(image, (place % columns) * from, Math.floor(place / columns) * from, from, from, x, y, side, side);
}

/** A picture as a button. @param {number} row @param {number[]} among the pictures shown next to it */
function cell(row, among) {
  const canvas = make("canvas", { width: shared.page.side, height: shared.page.side, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  if (context) drawSmall(context, row, 0, 0, shared.page.side);
  const button = make("button", { class: "cell", "aria-label": words(row), "aria-pressed": String(shared.chosen.has(row)), title: words(row), "data-row": String(row) }, canvas);
  if (shared.best[row] >= 0) button.style.setProperty("--hue", css(hueOf(shared.classes[shared.best[row]]), 0.15 + 0.85 * (shared.certainty[row] / 100) ** 2));
  if (shared.said[row] !== undefined) button.classList.add("said");
  button.addEventListener("click", (event) => {
    const from = among.indexOf(anchor);
    if (event.shiftKey && from >= 0) choose(among.slice(Math.min(from, among.indexOf(row)), Math.max(from, among.indexOf(row)) + 1));
    else if (shared.chosen.size === 1 && shared.chosen.has(row)) choose([]);
    else choose([row], event.ctrlKey || event.metaKey);
    if (!event.shiftKey) anchor = row;
  });
  return button;
}

/** Fill a grid and keep the focus. @param {string} id @param {number[]} rows */
function fillGrid(id, rows) {
  const grid = byId(id, HTMLElement);
  const focused = grid.contains(document.activeElement) ? document.activeElement?.getAttribute("data-row") : null;
  grid.replaceChildren(...rows.map((row) => cell(row, rows)));
  if (focused !== null) /** @type {HTMLElement | null} */ (grid.querySelector(`[data-row="${focused}"]`) ?? grid.firstElementChild)?.focus();
}

function shownRows() {
  const filter = byId("filter", HTMLSelectElement).value;
  const rows = shared.names.map((_, row) => row);
  if (filter === "said") return rows.filter((row) => shared.said[row] !== undefined);
  if (filter === "unsure") return rows.filter((row) => shared.said[row] === undefined).sort((a, b) => shared.certainty[a] - shared.certainty[b]);
  if (filter.startsWith("class ")) return rows.filter((row) => shared.best[row] === Number(filter.slice(6))).sort((a, b) => shared.certainty[b] - shared.certainty[a]);
  return rows;
}

function showClasses() {
  const counts = new Map();
  const said = new Map();
  for (const best of shared.best) counts.set(best, (counts.get(best) ?? 0) + 1);
  for (const value of Object.values(shared.said)) said.set(value, (said.get(value) ?? 0) + 1);
  const list = [...allClasses()];
  byId("classes", HTMLElement).replaceChildren(
    ...list.map((name, n) => {
      const number = shared.classes.indexOf(name);
      const words = `${name}: ${said.get(number) ?? 0} said, ${counts.get(number) ?? 0} in all`;
      const press = () => {
        if (shared.chosen.size > 0) void say([...shared.chosen], name);
        else { armed = armed === n ? -1 : n; show(); }
      };
      const button = make("button", { class: "class", "aria-pressed": String(armed === n), "aria-label": words, title: words, onclick: press }, `${name} `, make("small", {}, `${said.get(number) ?? 0} / ${counts.get(number) ?? 0}`), make("kbd", {}, n < 9 ? ` ${n + 1}` : ""));
      button.style.setProperty("--hue", css(hueOf(name)));
      return button;
    }),
    make("button", { class: "class", onclick: () => say([...shared.chosen], shared.classes[0]) }, "None of these ", make("kbd", {}, "0")),
  );
  const filter = byId("filter", HTMLSelectElement);
  const value = filter.value;
  const options = [["all", "all"], ["unsure", "least sure first"], ["said", "labelled"], ...shared.classes.map((name, n) => [`class ${n}`, name])];
  filter.replaceChildren(...options.map(([value, text]) => make("option", { value }, text)));
  filter.value = options.some(([other]) => other === value) ? value : "all";
}

function show() {
  const labelled = Object.values(shared.said).filter((value) => value !== shared.page.notSure).length;
  byId("counts", HTMLElement).textContent = `${labelled.toLocaleString("en")} of ${shared.names.length.toLocaleString("en")} pictures labelled, ${allClasses().length} classes`;
  byId("undo", HTMLButtonElement).disabled = shared.undo === 0;
  showClasses();
  fillGrid("tray", shared.tray);
  const rows = shownRows();
  gridStart = Math.max(0, Math.min(gridStart, rows.length - 1));
  byId("map", HTMLElement).hidden = view !== "map";
  byId("grid", HTMLElement).hidden = byId("pager", HTMLElement).hidden = view !== "grid";
  byId("show-map", HTMLElement).setAttribute("aria-pressed", String(view === "map"));
  byId("show-grid", HTMLElement).setAttribute("aria-pressed", String(view === "grid"));
  if (view === "grid") fillGrid("grid", rows.slice(gridStart, gridStart + PER_PAGE));
  else redrawMap(hueOf, drawSmall, new Set(rows));
  byId("place", HTMLElement).textContent = rows.length === 0 ? "none" : `${gridStart + 1} – ${Math.min(gridStart + PER_PAGE, rows.length)} of ${rows.length}`;
  const [picture, one] = [byId("picture", HTMLImageElement), shared.current >= 0 && shared.chosen.size > 0];
  byId("chosen", HTMLElement).textContent = !one ? "No picture is chosen." : shared.chosen.size > 1 ? `${shared.chosen.size} pictures; the last: ${words(shared.current)}` : words(shared.current);
  byId("why", HTMLElement).hidden = picture.hidden = !one;
  if (one && picture.dataset.row !== String(shared.current)) {
    picture.dataset.row = String(shared.current);
    picture.src = `picture/${shared.current}`;
  }
  picture.alt = one ? words(shared.current) : "";
}

/** The estimate of the error, which takes a few solutions more. */
async function estimate() {
  const before = shared.revision;
  await new Promise((resolve) => setTimeout(resolve, 400)); // not while one label follows another
  if (before !== shared.revision) return;
  const { error, curve, revision } = await ask("error");
  if (revision !== shared.revision) return;
  byId("error", HTMLElement).textContent = typeof error === "number" ? `about ${(100 * error).toFixed(1)} % of the pictures without a label are wrong (estimated with held-out labels)` : "An estimate needs ten labels, at least two of a class.";
  const canvas = byId("error-curve", HTMLCanvasElement);
  const context = canvas.getContext("2d");
  if (!context || !curve?.length) return;
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.strokeStyle = context.fillStyle = styled("--accent");
  const most = Math.max(...curve.map((/** @type {number[]} */ point) => point[1]), 0.01);
  const last = curve[curve.length - 1][0];
  context.beginPath();
  curve.forEach(([labels, value] = [0, 0]) => {
    const [x, y] = [4 + (252 * labels) / last, 64 - (58 * value) / most];
    context.lineTo(x, y);
    context.fillRect(x - 2, y - 2, 4, 4);
  });
  context.stroke();
}

const why = async () => {
  if (shared.current >= 0) showReasons(byId("reasons", HTMLElement), await ask(`why/${shared.current}`), { drawSmall, names: shared.names, side: shared.page.side });
};
const undo = async () => { const state = await ask("undo", {}); if (!state.failed) take(state); void estimate(); };

/** @param {KeyboardEvent} event */
function key(event) {
  const at = event.target;
  if (at instanceof HTMLInputElement || at instanceof HTMLSelectElement) return;
  const rows = [...shared.chosen];
  const focused = at instanceof HTMLElement && at.dataset.row !== undefined ? [Number(at.dataset.row)] : [];
  const meant = rows.length > 0 ? rows : focused;
  if ((event.ctrlKey || event.metaKey) && event.key === "z") void undo();
  else if (event.ctrlKey || event.metaKey || event.altKey) return;
  else if (event.key >= "1" && event.key <= "9" && allClasses()[Number(event.key) - 1]) void say(meant, allClasses()[Number(event.key) - 1]);
  else if (event.key === "0") void say(meant, shared.classes[0]);
  else if (event.key === "n") void say(meant, shared.page.notSure);
  else if (event.key === "x") void say(meant, null);
  else if (event.key === "u") void undo();
  else if (event.key === "w") void why();
  else if (event.key === "Escape") { armed = -1; choose([]); }
  else if (event.key.startsWith("Arrow") && focused.length > 0) {
    const cells = /** @type {HTMLElement[]} */ ([...(at instanceof HTMLElement ? at.parentElement?.children ?? [] : [])]);
    const across = cells.filter((one) => one.offsetTop === cells[0].offsetTop).length;
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across }[event.key] ?? 0;
    cells[cells.findIndex((one) => one === at) + step]?.focus();
  } else return;
  event.preventDefault();
}

function listen() {
  byId("new-class", HTMLFormElement).addEventListener("submit", (event) => {
    event.preventDefault();
    const input = byId("class-name", HTMLInputElement);
    const name = input.value.trim();
    input.value = "";
    if (name === "") return;
    if (!shared.classes.includes(name) && !typed.includes(name)) typed.push(name);
    if (shared.chosen.size > 0) void say([...shared.chosen], name);
    else show();
  });
  for (const [id, action] of /** @type {[string, () => void][]} */ ([
    ["undo", undo], ["why", why], ["not-sure", () => say([...shared.chosen], shared.page.notSure)], ["clear", () => say([...shared.chosen], null)],
    ["save", async () => { const { saved } = await ask("save", {}); if (saved) tell(`Saved: ${saved}`); }],
    ["show-map", () => { view = "map"; show(); }], ["show-grid", () => { view = "grid"; show(); }],
    ["back", () => { gridStart -= PER_PAGE; show(); }], ["on", () => { if (gridStart + PER_PAGE < shownRows().length) gridStart += PER_PAGE; show(); }],
    ["scheme", () => { const root = document.documentElement; root.dataset.scheme = root.dataset.scheme === "dark" ? "light" : "dark"; show(); if (byId("reasons", HTMLElement).childElementCount > 0) void why(); }],
  ])) byId(id, HTMLElement).addEventListener("click", action);
  byId("filter", HTMLSelectElement).addEventListener("change", () => { gridStart = 0; show(); });
  document.addEventListener("keydown", key);
}

async function start() {
  if (window.matchMedia("(prefers-color-scheme: dark)").matches) document.documentElement.dataset.scheme = "dark";
  byId("source", HTMLElement).textContent = `${shared.page.name}:`;
  let state = await ask("state");
  while (!state.names) {
    if (state.failed) return;
    byId("stage", HTMLElement).textContent = `${state.stage} …`;
    byId("share", HTMLProgressElement).value = state.share;
    await new Promise((resolve) => setTimeout(resolve, 300));
    state = await ask("state");
  }
  const sheets = Math.ceil(state.names.length / shared.page.perSheet);
  shared.sheets = Array.from({ length: sheets }, (_, k) => make("img", { src: `sheet/${k}` }));
  await Promise.all(shared.sheets.map((image) => image.decode().catch(() => {})));
  byId("progress", HTMLElement).hidden = true;
  byId("labelling", HTMLElement).hidden = false;
  listen();
  take(state);
  choose([shared.tray[0]]);
  document.body.setAttribute("aria-busy", "false");
  void estimate();
  setInterval(async () => {
    if (document.hidden || document.body.getAttribute("aria-busy") === "true") return;
    const now = await ask(`state/${shared.revision}`);
    if (now.revision !== undefined && now.revision !== shared.revision && now.best) { take(now); void estimate(); }
  }, POLL);
}

void start();
