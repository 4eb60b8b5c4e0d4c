// The chosen picture from its own file, fitted to the panel, and large at a click or a key.
import { byId } from "./dom.js";
import { counted, shared, wordsOf } from "./label_state.js";

/** Show what is chosen. */
export function showChosen() {
  const isOne = shared.current >= 0 && shared.chosen.size > 0;
  byId("chosen", HTMLElement).textContent = chosenWords();
  byId("chosen-size", HTMLElement).textContent = isOne ? sizeWords(shared.current) : "";
  byId("zoom", HTMLButtonElement).classList.toggle("empty-frame", !isOne);
  byId("why", HTMLButtonElement).hidden = !isOne;
  if (!isOne) {
    byId("large", HTMLDialogElement).close();
    return;
  }
  const words = wordsOf(shared.current);
  for (const id of ["picture", "large-picture"]) {
    const picture = byId(id, HTMLImageElement);
    picture.alt = words;
    const isShown = id === "picture" || byId("large", HTMLDialogElement).open;
    if (isShown) showOriginal(picture);
  }
  byId("large-words", HTMLElement).textContent = `${words} (${sizeWords(shared.current)})`;
}

/** The size of a picture in its file. @param {number} row */
function sizeWords(row) {
  const [width, height] = shared.sizes[row];
  return `${width} × ${height} pixels`;
}

function chosenWords() {
  const count = shared.chosen.size;
  if (count === 0 || shared.current < 0) return "No picture is chosen.";
  if (count === 1) return wordsOf(shared.current);
  return `${counted(count, "picture")}; the last: ${wordsOf(shared.current)}`;
}

/** Addresses of pictures that are here already, by their rows, the newest last. @type {Map<number, string>} */
const fetched = new Map();
const KEPT = 60; // pictures

/** Fetch pictures that may be chosen next, so that they are shown at once. @param {number[]} rows */
export function prefetch(rows) {
  for (const row of rows) {
    if (!fetched.has(row)) void fetchPicture(row);
  }
}

/** @param {number} row */
async function fetchPicture(row) {
  fetched.set(row, "");
  try {
    const answer = await fetch(`picture/${row}`);
    if (!answer.headers.get("Content-Type")?.startsWith("image/")) throw new Error("no picture");
    fetched.set(row, URL.createObjectURL(await answer.blob()));
  } catch {
    fetched.delete(row);
  }
  for (const old of [...fetched.keys()].slice(0, Math.max(0, fetched.size - KEPT))) {
    if (old === shared.current) continue;
    URL.revokeObjectURL(fetched.get(old) ?? "");
    fetched.delete(old);
  }
}

/** @param {HTMLImageElement} picture */
function showOriginal(picture) {
  if (picture.dataset.row === String(shared.current)) return;
  picture.dataset.row = String(shared.current);
  picture.src = fetched.get(shared.current) || `picture/${shared.current}`;
}

/** Open or close the large picture. */
export function toggleLarge() {
  const large = byId("large", HTMLDialogElement);
  if (large.open) {
    large.close();
    return;
  }
  if (shared.current < 0 || shared.chosen.size === 0) return;
  large.showModal();
  setActualSize(false);
  showChosen();
  byId("large-frame", HTMLElement).focus();
}

/** @param {boolean} on pixels as they are, instead of fitted to the window */
function setActualSize(on) {
  byId("large-frame", HTMLElement).classList.toggle("actual", on);
  byId("large-size", HTMLElement).textContent = on ? "Fit to the window" : "Actual size";
}

/** Set up the panel. */
export function chosenPanel() {
  const isActual = () => byId("large-frame", HTMLElement).classList.contains("actual");
  byId("zoom", HTMLButtonElement).addEventListener("click", toggleLarge);
  byId("large-close", HTMLButtonElement).addEventListener("click", () => byId("large", HTMLDialogElement).close());
  byId("large-size", HTMLButtonElement).addEventListener("click", () => setActualSize(!isActual()));
  byId("large-picture", HTMLImageElement).addEventListener("click", () => setActualSize(!isActual()));
}
