// The map of all pictures: small pictures in frames of the colours of their classes, a lasso, arrow keys.
import { byId, contextOf, pointerOn, styled } from "./dom.js";
import { colourOf, markOf } from "./label_colours.js";
import { PixelPictures, pixelOf } from "./label_pixels.js";
import { drawSmall, rowsOfSheet, whenSheetArrives } from "./label_small.js";
import { counted, shared, wordsOf } from "./label_state.js";
import { MapWindow } from "./label_zoom.js";

const EDGE = 10; // pixels around the outermost pictures, for their frames: that of a chosen one takes 8
const NEAR = 40; // pixels from a picture at which a click still means it
const SMALL_MARK = 20; // pixels of a picture from which on its mark fits; smaller ones are many
const UNSURE = 60; // % of certainty
const WHEEL_ZOOM = 0.0015; // zoom for each pixel that a wheel turns
const LARGEST_ON_MAP = 160; // pixels of a picture on the map

/** @typedef {{ x: number, y: number }} Point */

/** The map; `choose` is called with the rows that were clicked or enclosed. */
export class PictureMap {
  /** @param {(rows: number[], add?: boolean) => void} choose */
  constructor(choose) {
    this.choose = choose;
    this.canvas = byId("map", HTMLCanvasElement);
    this.pictures = document.createElement("canvas"); // all that a lasso and a choice do not change
    /** @type {Point[]} */ this.lasso = [];
    /** @type {Set<number>} */ this.shown = new Set();
    this.side = 24;
    this.wholeSide = 24; // of a picture on the whole map
    this.window = new MapWindow();
    /** @type {Map<number, Point>} */ this.fingers = new Map(); // that are on the map
    this.panned = false; // whether the pointer moves the map instead of enclosing pictures
    this.width = 0;
    this.height = 0;
    /** @type {PixelPictures | null} */ this.tiny = null; // pictures that are too small for marks
    this.waiting = false;
    this.stale = true; // whether all pictures have to be drawn again
    /** @type {number[]} */ this.arrived = []; // sheets whose pictures are not drawn yet
    this.#listen();
    new ResizeObserver(() => this.redraw()).observe(this.canvas);
    whenSheetArrives((sheet) => {
      this.arrived.push(sheet);
      this.redrawChoice();
    });
  }

  /** Show these pictures; the others are pale. @param {number[]} rows @param {number} side pixels of a picture */
  show(rows, side) {
    this.shown = new Set(rows);
    this.wholeSide = side;
    this.#zoomed();
  }

  /** Draw the map after it was zoomed or moved. */
  #zoomed() {
    this.side = Math.min(Math.max(LARGEST_ON_MAP, this.wholeSide), this.wholeSide * this.window.growth);
    byId("fit", HTMLButtonElement).disabled = this.window.isWhole;
    this.redraw();
  }

  /** Show the whole map. */
  fit() {
    this.window.fit();
    this.#zoomed();
  }

  /** Zoom by a factor around the middle, or around the picture that is chosen. @param {number} factor */
  zoom(factor) {
    const place = shared.current >= 0 ? shared.places[shared.current] : null;
    const { isWhole } = this.window;
    this.window.zoomAt(factor, { x: 0.5, y: 0.5 });
    if (place && isWhole) this.window.centre({ x: place[0], y: place[1] });
    this.#zoomed();
  }

  /** Draw everything again with the next frame. */
  redraw() {
    this.stale = true;
    this.redrawChoice();
  }

  /** Draw what is chosen, and pictures that have arrived, with the next frame: 20,000 pictures take a while. */
  redrawChoice() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (this.canvas.clientWidth === 0) return; // hidden
      if (this.stale) this.#drawPictures();
      else for (const sheet of this.arrived) this.#drawRows(rowsOfSheet(sheet));
      this.stale = false;
      this.arrived = [];
      this.drawChoice();
    });
  }

  /** Where a picture is, in pixels of the page. @param {number} row @returns {Point} */
  at(row) {
    const margin = this.side / 2 + EDGE;
    const [x, y] = shared.places[row] ?? [NaN, NaN]; // nowhere: it is not drawn, and nothing is near it
    const { window } = this;
    return {
      x: margin + window.seen(x, window.x) * (this.width - 2 * margin),
      y: margin + window.seen(y, window.y) * (this.height - 2 * margin),
    };
  }

  #drawPictures() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    for (const canvas of [this.canvas, this.pictures]) {
      canvas.width = Math.round(this.width * ratio);
      canvas.height = Math.round(this.height * ratio);
    }
    contextOf(this.pictures).scale(ratio, ratio);
    const { width, height } = this.pictures;
    const side = Math.round(this.side * ratio);
    this.tiny = this.side < SMALL_MARK ? new PixelPictures(width, height, side, this.tiny) : null;
    this.#drawRows({ first: 0, end: shared.names.length });
  }

  /** @param {{ first: number, end: number }} rows */
  #drawRows({ first, end }) {
    const context = contextOf(this.pictures);
    if (this.tiny) {
      for (const isShown of [false, true]) this.#drawTiny(this.tiny, first, end, isShown);
      context.putImageData(this.tiny.image, 0, 0);
      return;
    }
    const colours = shared.classes.map(colourOf);
    const marks = shared.classes.map(markOf);
    for (let row = first; row < end; row++) {
      const best = shared.best[row];
      if (!this.#isSeen(row)) continue;
      context.globalAlpha = this.shown.has(row) ? 1 : 0.12;
      this.#drawPicture(context, row, best < 0 ? null : colours[best], best < 0 ? "" : marks[best]);
    }
  }

  /**
   * @param {PixelPictures} tiny
   * @param {number} first row
   * @param {number} end
   * @param {boolean} isShown whether those that the filter shows are drawn, or the others
   */
  #drawTiny(tiny, first, end, isShown) {
    const ratio = devicePixelRatio || 1;
    const colours = shared.classes.map((name) => pixelOf(colourOf(name)));
    for (let row = first; row < end; row++) {
      if (this.shown.has(row) !== isShown) continue;
      const { x, y } = this.at(row);
      const best = shared.best[row];
      const frame = Math.round((shared.said[row] === undefined ? 2 : 3) * ratio);
      if (best >= 0) tiny.drawFrame(x * ratio, y * ratio, frame, colours[best], shared.certainty[row] < UNSURE, isShown);
      tiny.draw(row, x * ratio, y * ratio, isShown);
    }
  }

  /**
   * A picture in its frame: broken where its class is unsure, thick where a person said it.
   * @param {CanvasRenderingContext2D} context
   * @param {number} row
   * @param {string | null} colour
   * @param {string} mark
   */
  #drawPicture(context, row, colour, mark) {
    const { side } = this;
    const { x, y } = this.at(row);
    const left = x - side / 2;
    const top = y - side / 2;
    drawSmall(context, row, left, top, side);
    if (colour === null) return;
    const said = shared.said[row] !== undefined;
    context.strokeStyle = colour;
    context.lineWidth = said ? 4 : 2;
    context.setLineDash(shared.certainty[row] < UNSURE ? [3, 3] : []);
    context.strokeRect(left - 1, top - 1, side + 2, side + 2);
    context.setLineDash([]);
    drawMark(context, left - 1, top - 1, mark, colour);
  }

  /** Whether a picture is at least partly in the window. @param {number} row */
  #isSeen(row) {
    const { x, y } = this.at(row);
    const { side } = this;
    return x > -side && y > -side && x < this.width + side && y < this.height + side;
  }

  /** Draw what is chosen and suggested over the pictures. */
  drawChoice() {
    const ratio = window.devicePixelRatio || 1;
    const context = contextOf(this.canvas);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.drawImage(this.pictures, 0, 0);
    context.scale(ratio, ratio);
    for (const row of shared.tray) this.#drawSuggestion(context, row);
    for (const row of shared.chosen) this.#drawChosen(context, row);
    if (this.lasso.length < 2) return;
    context.strokeStyle = styled("--text");
    context.lineWidth = 2;
    context.beginPath();
    for (const { x, y } of this.lasso) context.lineTo(x, y);
    context.stroke();
    const last = this.lasso[this.lasso.length - 1];
    drawMark(context, last.x + 12, last.y + 6, counted(this.#enclosed().length, "picture"), styled("--text"));
  }

  /** @param {CanvasRenderingContext2D} context @param {number} row */
  #drawSuggestion(context, row) {
    const { x, y } = this.at(row);
    drawMark(context, x + this.side / 2 - 9, y - this.side / 2 - 3, "?", styled("--text"));
  }

  /** @param {CanvasRenderingContext2D} context @param {number} row */
  #drawChosen(context, row) {
    const { x, y } = this.at(row);
    const size = this.side + 9;
    drawSmall(context, row, x - this.side / 2, y - this.side / 2, this.side);
    // Black and white, or white and black: no class has them.
    context.lineWidth = 7;
    context.strokeStyle = styled("--panel");
    context.strokeRect(x - size / 2, y - size / 2, size, size);
    context.lineWidth = 4;
    context.strokeStyle = styled("--text");
    context.strokeRect(x - size / 2, y - size / 2, size, size);
  }

  // Pointer and keys ---------------------------------------------------------------------------------------------

  /** The shown pictures inside of the lasso. */
  #enclosed() {
    return [...this.shown].filter((row) => isInside(this.at(row), this.lasso));
  }

  /** @param {MouseEvent} event @returns {Point} from 0 to 1 across the map, without its margin */
  #share(event) {
    const { x, y } = this.#point(event);
    const margin = this.side / 2 + EDGE;
    return { x: (x - margin) / (this.width - 2 * margin), y: (y - margin) / (this.height - 2 * margin) };
  }

  /** Move or zoom the map by two fingers. @param {PointerEvent} event */
  #pinch(event) {
    const before = [...this.fingers.values()];
    this.fingers.set(event.pointerId, this.#share(event));
    const after = [...this.fingers.values()];
    const middle = (/** @type {Point[]} */ [a, b]) => ({ x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 });
    const apart = (/** @type {Point[]} */ [a, b]) => Math.hypot(a.x - b.x, a.y - b.y) || 1e-6;
    const [from, to] = [middle(before), middle(after)];
    this.window.pan(to.x - from.x, to.y - from.y);
    this.window.zoomAt(apart(after) / apart(before), to);
    this.#zoomed();
  }

  /** @param {MouseEvent} event @returns {Point} */
  #point(event) {
    const { x, y } = pointerOn(event, this.canvas);
    return { x: x * this.canvas.clientWidth, y: y * this.canvas.clientHeight };
  }

  #listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.window.zoomAt(Math.exp(-WHEEL_ZOOM * event.deltaY), this.#share(event));
      this.#zoomed();
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      this.fingers.set(event.pointerId, this.#share(event));
      canvas.setPointerCapture(event.pointerId);
      // The middle button or Alt moves the map, and so do two fingers.
      this.panned = event.button === 1 || event.altKey || this.fingers.size > 1;
      if (event.button === 1) event.preventDefault();
      this.lasso = this.panned ? [] : [this.#point(event)];
    });
    canvas.addEventListener("pointermove", (event) => {
      if (this.fingers.size === 2 && this.fingers.has(event.pointerId)) {
        this.#pinch(event);
        return;
      }
      const finger = this.fingers.get(event.pointerId);
      if (this.panned && finger) {
        const now = this.#share(event);
        this.window.pan(now.x - finger.x, now.y - finger.y);
        this.fingers.set(event.pointerId, now);
        this.#zoomed();
        return;
      }
      const point = this.#point(event);
      const near = this.#nearest(point);
      canvas.title = near < 0 ? "" : `${wordsOf(near)}${shared.tray.includes(near) ? " (?: worth labelling next)" : ""}`;
      if (this.lasso.length === 0) return;
      this.lasso.push(point);
      this.drawChoice();
    });
    canvas.addEventListener("pointerup", (event) => {
      this.fingers.delete(event.pointerId);
      if (!this.panned) this.#endLasso(event);
      if (this.fingers.size === 0) this.panned = false;
    });
    canvas.addEventListener("pointercancel", (event) => {
      this.fingers.delete(event.pointerId);
      this.lasso = [];
      this.drawChoice();
    });
    canvas.addEventListener("keydown", (event) => this.#move(event));
  }

  /** @param {PointerEvent} event */
  #endLasso(event) {
    const line = this.lasso;
    this.lasso = [];
    if (line.length === 0) return;
    const [start] = line;
    const extent = Math.max(...line.map(({ x, y }) => Math.hypot(x - start.x, y - start.y)));
    if (extent > 8) {
      this.choose([...this.shown].filter((row) => isInside(this.at(row), line)), event.shiftKey);
      return;
    }
    const row = this.#nearest(start);
    this.choose(row < 0 ? [] : [row], event.shiftKey || event.ctrlKey || event.metaKey);
  }

  /** The shown picture nearest to a point, -1 if none is near. @param {Point} point */
  #nearest(point) {
    let best = -1;
    let least = NEAR ** 2;
    for (const row of this.shown) {
      const { x, y } = this.at(row);
      const distance = (x - point.x) ** 2 + (y - point.y) ** 2;
      if (distance < least) {
        best = row;
        least = distance;
      }
    }
    return best;
  }

  /** Choose the next picture in the direction of an arrow key. @param {KeyboardEvent} event */
  #move(event) {
    const zooms = { "+": 1.5, "=": 1.5, "-": 1 / 1.5 };
    const zoom = zooms[/** @type {"+"} */ (event.key)];
    if (zoom) {
      this.zoom(zoom);
      event.preventDefault();
      return;
    }
    const directions = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const direction = directions[/** @type {"ArrowLeft"} */ (event.key)];
    if (!direction) return;
    event.preventDefault();
    const middle = { x: this.canvas.clientWidth / 2, y: this.canvas.clientHeight / 2 };
    const from = shared.current >= 0 ? this.at(shared.current) : middle;
    let best = -1;
    let least = Infinity;
    for (const row of this.shown) {
      const { x, y } = this.at(row);
      const ahead = (x - from.x) * direction[0] + (y - from.y) * direction[1];
      const aside = Math.abs((x - from.x) * direction[1] + (y - from.y) * direction[0]);
      const cost = ahead + 3 * aside;
      if (row !== shared.current && ahead > 0.5 && cost < least) {
        best = row;
        least = cost;
      }
    }
    if (best < 0) return;
    if (!this.#isSeen(best)) {
      const [x, y] = shared.places[best] ?? [0.5, 0.5];
      this.window.centre({ x, y });
      this.#zoomed();
    }
    this.choose([best], event.shiftKey);
  }
}

/**
 * A small sign on a ground of its colour, which can be read on any picture.
 * @param {CanvasRenderingContext2D} context
 * @param {number} left
 * @param {number} top
 * @param {string} text
 * @param {string} colour
 */
function drawMark(context, left, top, text, colour) {
  context.font = "bold 10px system-ui, sans-serif";
  const width = context.measureText(text).width + 5;
  context.fillStyle = styled("--panel");
  context.fillRect(left, top, width, 12);
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.strokeRect(left + 0.5, top + 0.5, width - 1, 11);
  context.fillStyle = styled("--text");
  context.fillText(text, left + 2.5, top + 9.5);
}

/** Whether a point lies inside a closed line. @param {Point} point @param {Point[]} line */
function isInside(point, line) {
  let inside = false;
  line.forEach((a, n) => {
    const b = line[(n + 1) % line.length];
    if (a.y > point.y === b.y > point.y) return;
    const crossing = ((b.x - a.x) * (point.y - a.y)) / (b.y - a.y) + a.x;
    if (point.x < crossing) inside = !inside;
  });
  return inside;
}
