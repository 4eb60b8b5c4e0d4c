// Many small pictures put together pixel by pixel: for 20,000 of them the functions of a canvas take far longer.
import { contextOf, make } from "./dom.js";
import { placeOnSheet, sheetImage, sheetNumber } from "./label_small.js";
import { shared } from "./label_state.js";

const PALE = 31; // opacity, of 255, of pictures that are not shown
const DASH = 2; // a broken frame changes every 2² pixels

/** A square of pixels on the canvas. @typedef {{ left: number, top: number, side: number }} Square */

/** A colour such as #0072b2 as a pixel: red is its lowest byte. @param {string} colour */
export function pixelOf(colour) {
  const [red, green, blue] = [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

export class PixelPictures {
  /**
   * @param {number} width of the canvas, in its pixels
   * @param {number} height
   * @param {number} side pixels of a picture
   * @param {PixelPictures | null} earlier whose sheets are used again if they have the same size
   */
  constructor(width, height, side, earlier) {
    this.image = new ImageData(width, height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.side = side;
    /** @type {Map<number, Uint32Array>} */ this.sheets = earlier?.side === side ? earlier.sheets : new Map(); // scaled
  }

  /** The pixels of a sheet at this size; null before it arrives. @param {number} number */
  #scaled(number) {
    const image = sheetImage(number);
    if (!image) return null;
    const known = this.sheets.get(number);
    if (known) return known;
    const { columns, perSheet } = shared.page;
    const width = columns * this.side;
    const height = (perSheet / columns) * this.side;
    const context = contextOf(make("canvas", { width, height }));
    context.drawImage(image, 0, 0, width, (image.naturalHeight / image.naturalWidth) * width);
    const pixels = new Uint32Array(context.getImageData(0, 0, width, height).data.buffer);
    this.sheets.set(number, pixels);
    return pixels;
  }

  /**
   * Draw a picture; nothing before its sheet arrives.
   * @param {number} row
   * @param {number} x of its middle
   * @param {number} y
   * @param {boolean} isShown or pale
   */
  draw(row, x, y, isShown) {
    const sheet = this.#scaled(sheetNumber(row));
    if (!sheet) return;
    const { side } = this;
    const { column, line } = placeOnSheet(row);
    const width = shared.page.columns * side;
    const first = line * side * width + column * side;
    const square = { left: Math.round(x - side / 2), top: Math.round(y - side / 2), side };
    this.#fill(square, isShown, (across, down) => sheet[first + down * width + across]);
  }

  /**
   * Draw the ground of a picture, which becomes its frame.
   * @param {number} x of the picture's middle
   * @param {number} y
   * @param {number} frame its width
   * @param {number} pixel its colour
   * @param {boolean} isBroken
   * @param {boolean} isShown or pale
   */
  drawFrame(x, y, frame, pixel, isBroken, isShown) {
    const side = this.side + 2 * frame;
    const square = { left: Math.round(x - this.side / 2) - frame, top: Math.round(y - this.side / 2) - frame, side };
    this.#fill(square, isShown, isBroken ? (across, down) => (((across + down) >> DASH) & 1 ? pixel : 0) : () => pixel);
  }

  /** @param {Square} square @param {boolean} isShown @param {(across: number, down: number) => number} source a pixel, 0 for none */
  #fill({ left, top, side }, isShown, source) {
    const { width, height } = this.image;
    const firstLine = Math.max(0, -top);
    const firstColumn = Math.max(0, -left);
    const lines = Math.min(side, height - top);
    const columns = Math.min(side, width - left);
    for (let down = firstLine; down < lines; down++) {
      for (let across = firstColumn; across < columns; across++) {
        const place = (top + down) * width + left + across;
        const pixel = source(across, down);
        if (pixel === 0) continue;
        if (isShown) this.pixels[place] = pixel;
        else if (this.pixels[place] === 0) this.pixels[place] = ((pixel & 0xffffff) | (PALE << 24)) >>> 0;
      }
    }
  }
}
