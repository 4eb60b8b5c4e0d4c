// Small pictures: sheets of many that the server makes, drawn piece by piece. Sheets come one at a time, so that labels need not
// wait for them; those of pictures that are cells come first.
import { make } from "./dom.js";
import { shared } from "./label_state.js";

/** @type {Map<number, HTMLImageElement>} */ const sheets = new Map(); // those that have arrived
/** @type {Set<number>} */ const asked = new Set(); // those that were asked for
/** @type {number[]} */ const wanted = []; // the others, in the order in which they are fetched
/** @type {((sheet: number) => void)[]} */ const listeners = [];

/** Call a function with the number of every sheet that arrives. @param {(sheet: number) => void} listener */
export function whenSheetArrives(listener) {
  listeners.push(listener);
}

/** The number of the sheet that a row is on. @param {number} row */
export const sheetNumber = (row) => Math.floor(row / shared.page.perSheet);

/** Fetch all sheets, one after the other. */
export async function fetchSheets() {
  const count = sheetNumber(shared.names.length - 1) + 1;
  for (let number = 0; number < count; number++) {
    if (!wanted.includes(number)) wanted.push(number);
  }
  for (let number = wanted.shift(); number !== undefined; number = wanted.shift()) await fetchSheet(number);
}

/** @param {number} number */
async function fetchSheet(number) {
  asked.add(number);
  const image = make("img", {});
  try {
    const answer = await fetch(`sheet/${number}`);
    image.src = URL.createObjectURL(await answer.blob());
    await image.decode();
  } catch {
    return; // the program was ended, or a picture cannot be read: its place stays empty
  }
  sheets.set(number, image);
  for (const listener of listeners) listener(number);
}

/** Fetch the sheet of a row before others. @param {number} row */
function fetchSoon(row) {
  const number = sheetNumber(row);
  if (asked.has(number) || wanted[0] === number) return;
  const place = wanted.indexOf(number);
  if (place >= 0) wanted.splice(place, 1);
  wanted.unshift(number);
}

/**
 * Draw a small picture; nothing is drawn before its sheet has arrived.
 * @param {CanvasRenderingContext2D} context
 * @param {number} row
 * @param {number} x
 * @param {number} y
 * @param {number} side
 */
export function drawSmall(context, row, x, y, side) {
  const { side: from } = shared.page;
  const image = sheets.get(sheetNumber(row));
  if (!image) return;
  const { column, line } = placeOnSheet(row);
  context.drawImage(image, column * from, line * from, from, from, x, y, side, side);
}

/** @param {number} row */
function placeOnSheet(row) {
  const { columns, perSheet } = shared.page;
  const place = row % perSheet;
  return { column: place % columns, line: Math.floor(place / columns) };
}

/** A small picture as a background, which takes a fraction of the time of a canvas. @param {number} row */
export function smallPicture(row) {
  const picture = make("span", { class: "small-picture", "data-small": String(row) });
  fetchSoon(row);
  showOn(picture, row);
  return picture;
}

/** @param {HTMLElement} picture @param {number} row */
function showOn(picture, row) {
  const image = sheets.get(sheetNumber(row));
  if (!image) return;
  const { column, line } = placeOnSheet(row);
  picture.style.backgroundImage = `url(${image.src})`;
  picture.style.backgroundSize = `calc(${shared.page.columns} * var(--side))`;
  picture.style.backgroundPosition = `calc(${-column} * var(--side)) calc(${-line} * var(--side))`;
}

/** A small picture as a canvas. @param {number} row */
export function smallCanvas(row) {
  const { side } = shared.page;
  const canvas = make("canvas", { width: side, height: side, class: "small", "data-small": String(row) });
  fetchSoon(row);
  drawOn(canvas, row);
  return canvas;
}

/** @param {HTMLCanvasElement} canvas @param {number} row */
function drawOn(canvas, row) {
  const context = canvas.getContext("2d");
  if (context) drawSmall(context, row, 0, 0, shared.page.side);
}

whenSheetArrives((sheet) => {
  for (const one of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-small]"))) {
    const row = Number(one.dataset.small);
    if (sheetNumber(row) !== sheet) continue;
    if (one instanceof HTMLCanvasElement) drawOn(one, row);
    else showOn(one, row);
  }
});
