// Small pictures: sheets of many that the server makes, drawn piece by piece. A sheet comes when it is first needed.
import { make } from "./dom.js";
import { shared } from "./label_state.js";

/** A sheet; `here` ends when it has arrived, or cannot. @typedef {{ image: HTMLImageElement, here: Promise<void> }} Sheet */

/** @type {Sheet[]} */ const sheets = [];
/** @type {((sheet: number) => void)[]} */ const listeners = [];

/** Call a function with the number of every sheet that arrives. @param {(sheet: number) => void} listener */
export function whenSheetArrives(listener) {
  listeners.push(listener);
}

/** The sheet of this number; it is on its way if it is not complete. @param {number} number */
function sheetOf(number) {
  if (!sheets[number]) {
    const image = make("img", {});
    sheets[number] = { image, here: fetchSheet(image, number) };
  }
  return sheets[number];
}

/** Fetch a sheet once, for canvases and as a background. @param {HTMLImageElement} image @param {number} number */
async function fetchSheet(image, number) {
  try {
    const answer = await fetch(`sheet/${number}`);
    image.src = URL.createObjectURL(await answer.blob());
    await image.decode();
  } catch {
    return; // the program was ended, or a picture cannot be read: its place stays empty
  }
  for (const listener of listeners) listener(number);
}

/** The number of the sheet that a row is on. @param {number} row */
export const sheetNumber = (row) => Math.floor(row / shared.page.perSheet);

/** The rows on a sheet. @param {number} sheet */
export function rowsOfSheet(sheet) {
  const { perSheet } = shared.page;
  return { first: sheet * perSheet, end: Math.min((sheet + 1) * perSheet, shared.names.length) };
}

/** Ask for all sheets, one after the other, so that others are not kept waiting. */
export async function fetchSheets() {
  const count = sheetNumber(shared.names.length - 1) + 1;
  for (let number = 0; number < count; number++) {
    await sheetOf(number).here;
  }
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
  const { image } = sheetOf(sheetNumber(row));
  if (!image.naturalWidth) return;
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
  showOn(picture, row);
  return picture;
}

/** @param {HTMLElement} picture @param {number} row */
function showOn(picture, row) {
  const { image } = sheetOf(sheetNumber(row));
  if (!image.naturalWidth) return;
  const { column, line } = placeOnSheet(row);
  picture.style.backgroundImage = `url(${image.src})`;
  picture.style.backgroundSize = `calc(${shared.page.columns} * var(--side))`;
  picture.style.backgroundPosition = `calc(${-column} * var(--side)) calc(${-line} * var(--side))`;
}

/** A small picture as a canvas. @param {number} row */
export function smallCanvas(row) {
  const { side } = shared.page;
  const canvas = make("canvas", { width: side, height: side, class: "small", "data-small": String(row) });
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
