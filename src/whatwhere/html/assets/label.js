// The labelling page: what is chosen, what is said, and the panels that show it.
import { byId } from "./dom.js";
import { cellsAcross, fillCells, Grid } from "./label_cells.js";
import { changeWords } from "./label_change.js";
import { answer, askedRow, checkPanel, lastAnswered, showCheck } from "./label_check.js";
import { chosenPanel, prefetch, showChosen, toggleLarge } from "./label_chosen.js";
import { nameField, showClasses } from "./label_classes.js";
import { Clicks } from "./label_clicks.js";
import { dropZone } from "./label_drop.js";
import { showError } from "./label_error.js";
import { exchangePanel } from "./label_exchange.js";
import { keyboard, keysDialog } from "./label_keys.js";
import { keyOfLit, lightUp, litStrip, showLit } from "./label_like.js";
import { PictureMap } from "./label_map.js";
import { reachBar, showReach } from "./label_reach.js";
import { openRename, renameDialog } from "./label_rename.js";
import { filteredRows, isOrdered, reviewedRows, reviewPanel, showFilter, showReview } from "./label_review.js";
import { fetchSheets } from "./label_small.js";
import { ask, counted, deliver, shared, tell, usedClasses, wordsOf } from "./label_state.js";
import { followPointer, showPointer } from "./label_pointer.js";
import { LABEL_STOPS } from "./label_tour.js";
import { tryDialog } from "./label_try.js";
import { showReasons } from "./label_why.js";
import { tourGuide } from "./tour.js";

const PAUSE = 1000; // milliseconds before the server is asked again after it did not answer

const QUEUE = 12; // suggestions, whose pictures are here before they are asked for
const SMALLEST_CELL = 40; // pixels of a picture in the grid

let view = "map";
let anchor = -1; // where a range that shift selects begins
let pointedRow = -1; // the picture in the grid that the pointer or an arrow key reached last
let underway = 0; // requests that are not answered yet
let given = 0; // labels, to tell a state from before a label from one after it
const clicks = new Clicks(); // that label by an armed class
let wasEmpty = false; // whether no picture was left to suggest
/** @type {Promise<void>} */ let working = Promise.resolve(); // labels are given one after the other
/** @type {Grid} */ let grid;
/** @type {PictureMap} */ let map;

// What is said ---------------------------------------------------------------------------------------------------

/** Do something when all that was asked for before is done. @param {() => Promise<void>} work */
function afterwards(work) {
  underway += 1;
  given += 1;
  showBusy();
  const mine = working.then(work);
  working = mine;
  return mine.finally(() => {
    underway -= 1;
    showBusy();
  });
}

/** The page is busy until the server has every label and the classes of all pictures follow. */
function showBusy() {
  document.body.setAttribute("aria-busy", String(underway > 0 || !shared.follows));
}

/**
 * Give rows a class; null takes a label away. The page shows it and goes on at once; the server is told behind it.
 * @param {number[]} rows
 * @param {string | null} name
 */
function say(rows, name) {
  if (rows.length === 0) {
    tell("Choose a picture first.");
    return Promise.resolve();
  }
  tell("");
  shared.lit = null;
  if (shared.check !== null) return answerHere(name);
  const following = nextInGrid(rows);
  for (const row of rows) {
    shared.takenOut.delete(row);
    sayHere(row, name);
  }
  goOn(following);
  setTimeout(show); // the next picture first: to draw 20,000 pictures takes a while
  speak(`${counted(rows.length, "picture")}: ${name ?? "no label"}.`);
  return afterwards(async () => {
    const state = await deliver("label", { rows, name });
    if (state.failed) await reload();
    else takeLabels(state);
    if (!state.failed && rows.length === 1 && name !== null) void light(rows[0], name);
  });
}

/** Let pictures light up that are most like one that got a class. @param {number} row @param {string} name */
async function light(row, name) {
  const mine = given;
  const isLast = () => mine === given && shared.armed === null && reviewedRows() === null;
  if ([shared.page.notSure, shared.page.noneOfThese].includes(name) || !isLast()) return;
  if (!(await lightUp(row, name, isLast))) return;
  showChoice();
  speak(`${counted(shared.lit?.rows.length ?? 0, "picture")} like it: Enter gives them ${name}, too.`);
}

/** Give the pictures that light up their class. */
function confirmLit() {
  const { lit } = shared;
  if (lit !== null && lit.meant.length > 0) void say(lit.meant, lit.name);
}

function putOut() {
  shared.lit = null;
  showChoice();
}

/** Answer the picture of a check that is asked for, and go on to the next. @param {string | null} name */
function answerHere(name) {
  const row = name === null ? lastAnswered() : askedRow();
  if (row === null) return Promise.resolve();
  answer(row, name);
  goOn(null);
  showCheck();
  return afterwards(async () => {
    const state = await deliver("answer", { row, name });
    if (state.failed) await reload();
    else takeLabels(state);
    if (state.check === null) {
      tell(state.measured);
      goOn(null);
    }
  });
}

/** Show a label before the server knows it. @param {number} row @param {string | null} name */
function sayHere(row, name) {
  if (name === null) delete shared.said[row];
  else if (name === shared.page.notSure) shared.said[row] = name;
  else {
    let number = shared.classes.indexOf(name);
    if (number < 0) {
      number = shared.classes.push(name) - 1;
      shared.slots.push(Math.max(0, ...shared.slots) + 1); // until the server chooses its key
    }
    shared.said[row] = number;
    shared.best[row] = number;
    shared.certainty[row] = 100;
  }
  shared.tray = shared.tray.filter((one) => one !== row);
}

/** Forget what the page shows before its server knows it. */
async function reload() {
  const state = await ask("state");
  if (!state.failed) take(state);
}

/** Give the chosen pictures a class; with none chosen, every click gives it. @param {string | null} name */
function give(name) {
  if (name !== null && shared.chosen.size === 0 && document.body.getAttribute("aria-busy") === "false") {
    shared.armed = shared.armed === name ? null : name;
    show();
    return;
  }
  void say([...shared.chosen], name);
}

/**
 * In the grid, the next picture without a label follows those that get one. After a label that replaces another, it is
 * simply the next picture. Null elsewhere.
 * @param {number[]} rows
 */
function nextInGrid(rows) {
  if (!byId("grid", HTMLElement).contains(document.activeElement)) return null;
  const last = Math.max(...rows.map((row) => grid.rows.indexOf(row)));
  const replaced = rows.every((row) => shared.said[row] !== undefined);
  return grid.rows.slice(last + 1).find((row) => replaced || shared.said[row] === undefined) ?? null;
}

/** Choose what is to be labelled next. @param {number | null} following the next picture in the grid */
function goOn(following) {
  if (shared.check !== null) {
    const row = askedRow();
    if (row !== null) select([row]);
    prefetch(shared.check.rows);
    return;
  }
  if (shared.armed !== null) return;
  if (following !== null) {
    choose([following]);
    grid.focus(following);
    return;
  }
  choose(shared.tray.slice(0, 1));
  prefetch(shared.tray);
  const first = byId("tray", HTMLElement).firstElementChild;
  const isTyping = document.activeElement === byId("class-name", HTMLInputElement);
  if (first instanceof HTMLElement && !isTyping && !byId("large", HTMLDialogElement).open) first.focus({ preventScroll: true });
}

/** Say to a screen reader what was done, and what is chosen now. @param {string} done */
function speak(done) {
  byId("spoken", HTMLElement).textContent = `${done} ${nextWords()}`;
}

function nextWords() {
  if (shared.current >= 0) return `Next: ${wordsOf(shared.current)}`;
  return shared.tray.length === 0 ? "Every picture has a label." : "No picture is chosen.";
}

const undo = () => {
  if (shared.check !== null) return answerHere(null);
  return afterwards(async () => {
    const state = await ask("undo", {});
    if (state.failed) return;
    tell("");
    shared.armed = null;
    shared.lit = null;
    takeLabels(state);
    // one picture can get its right label at once; to label many is for the user to choose
    if (state.undone?.length) choose(state.undone.length === 1 ? state.undone : []);
    speak("Undone.");
  });
};

const save = () =>
  afterwards(async () => {
    const { saved, command } = await ask("save", {});
    if (saved) byId("try-open", HTMLElement).hidden = false;
    if (saved) tell(`Saved: ${saved}. To classify new pictures with it: ${command}`);
  });

/** Confirm the class that is looked through; what was taken out is chosen then. */
function confirmReviewed() {
  const reviewed = reviewedRows();
  if (reviewed === null) return;
  const out = [...shared.takenOut].filter((row) => shared.said[row] === undefined);
  const { name, rows } = reviewed;
  void say(rows, name).then(() => {
    shared.takenOut.clear();
    const done = `${counted(rows.length, "picture")} confirmed as ${name}.`;
    if (out.length > 0) select(out);
    tell(out.length > 0 ? `${done} What you took out is chosen: give it a name.` : done);
    speak(done);
  });
}

/** Use a new state. The picture that is being looked at stays in front of the suggestions. @param {any} state */
function take(state) {
  const { current } = shared;
  const isAsked = shared.tray.includes(current) && shared.chosen.has(current) && state.said?.[current] === undefined;
  Object.assign(shared, state);
  if (isAsked && state.tray) shared.tray = [current, ...shared.tray.filter((/** @type {number} */ row) => row !== current)].slice(0, QUEUE);
  if (shared.trouble) tell(shared.trouble, true);
  byId("behind", HTMLElement).textContent = shared.behind;
  prefetch(shared.tray);
  show();
  showBusy();
  if (shared.chosen.size === 0 && wasEmpty && shared.tray.length > 0) goOn(null);
  wasEmpty = shared.tray.length === 0;
}

/** Give the classes of all pictures the numbers that they have among other classes. @param {string[]} classes */
function renumber(classes) {
  const numbers = shared.classes.map((name) => classes.indexOf(name));
  shared.best = shared.best.map((number) => (number < 0 ? -1 : numbers[number]));
}

/** Use what the server says of labels, before the classes of other pictures follow. @param {any} state */
function takeLabels(state) {
  renumber(state.classes);
  for (const key of ["revision", "classes", "slots", "said", "undo", "follows", "elsewhere", "check", "measured"]) {
    if (key in state) Object.assign(shared, { [key]: state[key] });
  }
  shared.tray = shared.tray.filter((row) => shared.said[row] === undefined);
  show();
}

// What is chosen -------------------------------------------------------------------------------------------------

/** Choose pictures, or label them if a class is pressed. @param {number[]} rows @param {boolean} [add] */
function choose(rows, add = false) {
  if (shared.armed !== null && rows.length > 0) void say(rows, shared.armed);
  else select(rows, add);
}

/** Choose pictures, also while a class is pressed. @param {number[]} rows @param {boolean} [add] */
function select(rows, add = false) {
  shared.lit = null; // who goes elsewhere does not mean them
  if (!add) shared.chosen.clear();
  for (const row of rows) shared.chosen.add(row);
  const before = shared.current;
  shared.current = rows[rows.length - 1] ?? shared.current;
  if (shared.chosen.size === 0) shared.current = -1;
  if (shared.current !== before) clearReasons();
  showChoice();
}

/** A click on a cell. @param {number} row @param {MouseEvent} event @param {number[]} among the pictures next to it */
function clickCell(row, event, among) {
  if (shared.armed !== null && !clicks.isAlone(event)) return; // the second click of a double one hits what moved up
  const from = among.indexOf(anchor);
  const to = among.indexOf(row);
  if (event.shiftKey && from >= 0) {
    choose(among.slice(Math.min(from, to), Math.max(from, to) + 1));
    return;
  }
  anchor = row;
  const isOnlyOne = shared.chosen.size === 1 && shared.chosen.has(row);
  if (isOnlyOne) choose([]);
  else choose([row], event.ctrlKey || event.metaKey);
}

/** A click in the grid: where a class is looked through, it takes a picture out or in. @param {number} row @param {MouseEvent} event */
function clickGrid(row, event) {
  if (reviewedRows() === null || shared.said[row] !== undefined) {
    clickCell(row, event, grid.rows);
    return;
  }
  if (shared.takenOut.has(row)) shared.takenOut.delete(row);
  else shared.takenOut.add(row);
  choose([row]);
  showReview();
}

/**
 * Show the chosen picture large, or close it. While a class is looked through, it is the picture that the pointer or an
 * arrow key reached last: it can be looked at without being taken out.
 */
function showLarge() {
  const isReviewed = reviewedRows() !== null && grid.rows.includes(pointedRow);
  if (isReviewed && !byId("large", HTMLDialogElement).open) select([pointedRow]);
  toggleLarge();
}

/** Remember the picture in the grid that the pointer reached last. @param {PointerEvent} event */
function point(event) {
  const cell = event.target instanceof Element ? event.target.closest(".cell") : null;
  pointedRow = cell instanceof HTMLElement ? Number(cell.dataset.row) : -1;
}

/** Move by an arrow key, in the cells or from one suggestion to the next. @param {string} key @param {HTMLElement | null} cell */
function move(key, cell) {
  const inGrid = cell !== null && byId("grid", HTMLElement).contains(cell);
  const rows = inGrid ? grid.rows : shared.tray;
  const across = inGrid ? grid.columns : cellsAcross(byId("tray", HTMLElement));
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across }[key] ?? 0;
  const from = rows.indexOf(cell === null ? shared.current : Number(cell.dataset.row));
  const row = rows[from < 0 ? 0 : from + step];
  if (row === undefined) return false;
  if (inGrid) {
    grid.focus(row);
    pointedRow = row;
  }
  if (shared.armed === null && !(inGrid && reviewedRows() !== null)) choose([row]);
  if (!inGrid) focusTray(row);
  return true;
}

/** @param {number} row */
function focusTray(row) {
  const found = byId("tray", HTMLElement).querySelector(`[data-row="${row}"]`);
  if (found instanceof HTMLElement) found.focus();
}

// What is shown --------------------------------------------------------------------------------------------------

function show() {
  const labelled = Object.values(shared.said).filter((value) => value !== shared.page.notSure).length;
  const classes = counted(usedClasses().length, "class", "classes");
  byId("source", HTMLElement).textContent = `${shared.page.name}:`;
  byId("counts", HTMLElement).textContent = `${labelled.toLocaleString("en")} of ${counted(shared.names.length, "picture")} labelled, ${classes}`;
  showFirstSteps();
  showCheck();
  byId("undo", HTMLButtonElement).disabled = shared.undo === 0 && shared.check === null;
  showClasses({ give, look, rename: openRename });
  showReach(give);
  showPointer();
  showFilter();
  showView();
  showLit();
  showChosenPanels();
}

/** What is still to do before other pictures get a class, and what waits for it. */
function showFirstSteps() {
  const [only, ...more] = usedClasses();
  const enough = more.length > 0;
  const place = byId("first-steps", HTMLElement);
  place.hidden = enough;
  if (only !== undefined && !enough) {
    place.textContent = `All labels are ${only}. Label a picture of another class: then all other pictures get a class.`;
  } else {
    place.textContent = "What is this? Type the name of its class and press Enter. From the second class on, all other pictures get a class.";
  }
  byId("save", HTMLButtonElement).disabled = !enough;
  byId("exports", HTMLElement).inert = !enough;
  byId("export-needs", HTMLElement).hidden = enough;
}

/** Show what a choice changes. */
function showChoice() {
  showChosenPanels();
  showReach(give);
  showLit();
  if (view === "grid") grid.redraw();
  else map.redrawChoice();
}

function showChosenPanels() {
  fillCells(byId("tray", HTMLElement), shared.tray, (row, event) => clickCell(row, event, shared.tray));
  byId("tray-empty", HTMLElement).hidden = shared.tray.length > 0;
  showChosen();
}

/** The map or the grid. */
function showView() {
  const rows = filteredRows();
  const side = Number(byId("size", HTMLInputElement).value);
  byId("map", HTMLElement).hidden = view !== "map";
  byId("map-legend", HTMLElement).hidden = view !== "map";
  byId("map-zoom", HTMLElement).classList.toggle("away", view !== "map");
  byId("grid", HTMLElement).hidden = view !== "grid" || rows.length === 0;
  byId("nothing", HTMLElement).hidden = view !== "grid" || rows.length > 0;
  byId("show-map", HTMLElement).setAttribute("aria-pressed", String(view === "map"));
  byId("show-grid", HTMLElement).setAttribute("aria-pressed", String(view === "grid"));
  byId("shown-count", HTMLElement).textContent = rows.length === shared.names.length ? "" : counted(rows.length, "picture");
  showReview(view === "grid");
  if (view === "grid") grid.show(rows, Math.max(SMALLEST_CELL, side));
  else map.show(rows, side);
}

/** @param {string} which map or grid */
function setView(which) {
  view = which;
  showView();
}

/** The map shows all pictures instead of an order, which only the grid has. */
function showMap() {
  if (isOrdered()) byId("filter", HTMLSelectElement).value = "all";
  setView("map");
}

/** Look through the members of a class in the grid. @param {string} name */
function look(name) {
  shared.lit = null; // who looks through a class does not mean them
  showLit();
  shared.takenOut.clear();
  byId("filter", HTMLSelectElement).value = `class ${name}`;
  setView("grid");
  byId("all-panel", HTMLElement).scrollIntoView({ block: "nearest" }); // on a phone it is below
  byId("grid", HTMLElement).scrollTop = 0;
  const [first] = grid.rows;
  pointedRow = first ?? -1;
  if (first !== undefined) grid.focus(first);
}

/** The estimate of the error. */
async function estimate() {
  const found = await ask("error");
  if (found.failed) return;
  shared.suspects = found.suspects;
  showFilter();
  showError(found, showConfused);
}

/** Show the pictures that are in doubt between two classes, the least sure first. @param {string[]} classes */
function showConfused(classes) {
  byId("filter", HTMLSelectElement).value = "all";
  const numbers = classes.map((name) => shared.classes.indexOf(name));
  shared.confused = numbers;
  showFilter();
  byId("filter", HTMLSelectElement).value = "confused";
  setView("grid");
  byId("all-panel", HTMLElement).scrollIntoView({ block: "nearest" });
}

async function why() {
  const row = shared.current;
  if (row < 0) return;
  const place = byId("reasons", HTMLElement);
  place.textContent = "Comparing …";
  const found = await ask(`why/${row}`);
  if (row !== shared.current) return;
  place.replaceChildren();
  showReasons(place, found, row);
}

function clearReasons() {
  const place = byId("reasons", HTMLElement);
  if (place.querySelector(".reason") !== null) place.replaceChildren();
}

// Start ----------------------------------------------------------------------------------------------------------

function listen() {
  /** @type {[string, () => void][]} */
  const buttons = [
    ["undo", () => void undo()],
    ["why", () => void why()],
    ["save", () => void save()],
    ["not-sure", () => give(shared.page.notSure)],
    ["clear", () => give(null)],
    ["show-map", showMap],
    ["show-grid", () => setView("grid")],
    ["confirm", confirmReviewed],
    ["zoom-in", () => map.zoom(1.5)],
    ["zoom-out", () => map.zoom(1 / 1.5)],
    ["fit", () => map.fit()],
  ];
  for (const [id, action] of buttons) byId(id, HTMLElement).addEventListener("click", action);
  byId("scheme", HTMLButtonElement).addEventListener("click", () => {
    show();
    void estimate();
    if (byId("reasons", HTMLElement).querySelector(".reason") !== null) void why();
  });
  byId("size", HTMLInputElement).addEventListener("input", showView);
  nameField(give);
  chosenPanel();
  reachBar();
  followPointer();
  renameDialog(say, show);
  tryDialog();
  exchangePanel(afterwards, (state) => {
    takeLabels(state);
    goOn(null);
  });
  checkPanel(afterwards, (state) => {
    takeLabels(state);
    goOn(null);
  });
  reviewPanel(showView, () => setView("grid"));
  byId("grid", HTMLElement).addEventListener("pointermove", point);
  litStrip(confirmLit, putOut, showChoice);
  const leave = () => {
    if (shared.lit !== null) putOut();
    else if (shared.armed !== null) {
      shared.armed = null;
      show();
    } else choose([]);
  };
  keyboard({ give, undo, why, large: showLarge, save, confirm: confirmReviewed, leave, pick: (row) => choose([row]), move, lit: (key, isInside) => keyOfLit(key, isInside, confirmLit) });
  tourGuide(LABEL_STOPS);
}

/** The first side of a small picture on a map of `count`, in pixels: what is in it can be seen. @param {number} count */
const startSize = (count) => Math.max(28, Math.min(56, Math.round(560 / Math.sqrt(count))));

/** The state of a session that is ready; its progress is shown until then. Null if it failed. */
async function firstState() {
  for (;;) {
    const state = await ask("state");
    if (state.names) return state;
    if (state.failed) return null;
    if (state.drop) {
      await dropZone(state.drop);
      continue;
    }
    byId("stage", HTMLElement).textContent = state.stage;
    byId("share", HTMLProgressElement).value = state.share;
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
}

/** Follow the labels of this tab and of others, and the work behind the page. The server answers once there is news. */
async function followNews() {
  for (;;) {
    const asked = labelsGiven();
    const state = await ask(`news/${shared.revision}.${shared.generation}`);
    if (state.failed) {
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
      continue;
    }
    showBehind(state.behind);
    if (!state.said || asked !== labelsGiven()) continue; // labels that the answer does not know were given meanwhile
    if (!state.best) {
      takeLabels(state);
      continue;
    }
    take(state);
    showChange(state.change);
    if (state.follows) void estimate();
  }
}

/** A number that changes with every label, and until the server has it. */
const labelsGiven = () => (underway > 0 ? NaN : given);

/** How far the work behind the page is. @param {string} words */
function showBehind(words) {
  if (words === undefined || words === shared.behind) return;
  shared.behind = words;
  byId("behind", HTMLElement).textContent = words;
}

/** What the last labels changed. @param {import("./label_state.js").Change | null} change */
function showChange(change) {
  byId("change", HTMLElement).textContent = change === null ? "" : changeWords(change);
}

function switchScheme() {
  const root = document.documentElement;
  root.dataset.scheme = root.dataset.scheme === "dark" ? "light" : "dark";
}

async function start() {
  if (window.matchMedia("(prefers-color-scheme: dark)").matches) document.documentElement.dataset.scheme = "dark";
  byId("source", HTMLElement).textContent = shared.page.name;
  keysDialog();
  byId("scheme", HTMLButtonElement).addEventListener("click", switchScheme);
  const state = await firstState();
  if (state === null) {
    byId("progress", HTMLElement).hidden = true;
    return;
  }
  byId("progress", HTMLElement).hidden = true;
  byId("labelling", HTMLElement).hidden = false;
  byId("exchange", HTMLElement).inert = false;
  byId("start-tour", HTMLButtonElement).disabled = false;
  shared.page.name = state.source; // pictures that were dropped have a name only now
  byId("size", HTMLInputElement).value = String(startSize(state.names.length));
  grid = new Grid(clickGrid);
  map = new PictureMap(choose);
  listen();
  take(state);
  goOn(null);
  document.body.setAttribute("aria-busy", "false");
  void estimate();
  void fetchSheets();
  void followNews();
}

void start();
