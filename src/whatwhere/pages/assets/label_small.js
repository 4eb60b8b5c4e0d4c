// Small pictures: sheets of many that the server makes, drawn piece by piece. A sheet comes when it is first needed.
import { make } from "./dom.js";
import { shared } from "./label_state.js";

/** @type {HTMLImageElement[]} */ const sheets = [];
/** @type {((sheet: number) => void)[]} */ const listeners = [];

/** Call a function with the number of every sheet that arrives. @param {(sheet: number) => void} listener */
export function whenSheetArrives(listener) {
  listeners.push(listener);
}

/** The sheet of this number; it is on its way if it is not complete. @param {number} number */
function sheetOf(number) {
  if (!sheets[number]) {
    const image = make("img", { src: `sheet/${number}` });
    image.addEventListener("load", () => listeners.forEach((listener) => listener(number)));
    sheets[number] = image;
  }
  return sheets[number];
}

/** The number of the sheet that a row is on. @param {number} row */
export const sheetNumber = (row) => Math.floor(row / shared.page.perSheet);

/** Ask for all sheets, one after the other, so that others are not kept waiting. */
export async function fetchSheets() {
  const count = sheetNumber(shared.names.length - 1) + 1;
  for (let number = 0; number < count; number++) {
    await sheetOf(number).decode().catch(() => {});
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
  const { side: from, columns, perSheet } = shared.page;
  const image = sheetOf(sheetNumber(row));
  if (!image.complete || !image.naturalWidth) return;
  const place = row % perSheet;
  const left = (place % columns) * from;
  const top = Math.floor(place / columns) * from;
  context.drawImage(image, left, top, from, from, x, y, side, side);
}

/** A small picture as an element; it is drawn again when its sheet arrives. @param {number} row */
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
  for (const canvas of document.querySelectorAll("canvas[data-small]")) {
    if (!(canvas instanceof HTMLCanvasElement)) continue;
    const row = Number(canvas.dataset.small);
    if (sheetNumber(row) === sheet) drawOn(canvas, row);
  }
});
