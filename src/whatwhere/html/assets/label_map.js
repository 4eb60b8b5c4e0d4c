// The map of all pictures: small pictures in frames of the colours of their classes, a lasso, arrow keys.
import { byId, contextOf, pointerOn, styled } from "./dom.js";
import { colourOf, markOf } from "./label_colours.js";
import { drawSmall, whenSheetArrives } from "./label_small.js";
import { counted, shared, wordsOf } from "./label_state.js";
import { classOfTile, tilesOf } from "./label_tiles.js";
import { MapWindow } from "./label_zoom.js";

const EDGE = 10; // pixels around the outermost pictures, for their frames: that of a chosen one takes 8
const NEAR = 40; // pixels from a picture at which a click still means it
const SMALL_MARK = 20; // pixels of a picture from which on its mark fits
const PALE = 0.12; // opacity of pictures that the filter leaves out
const UNSURE = 60; // % of certainty
const WHEEL_ZOOM = 0.0015; // zoom for each pixel that a wheel turns
const FAST = 15; // milliseconds: a map that takes longer is drawn again once it rests
const REST = 150; // milliseconds without a movement
const TILE_ZOOM = 2.5; // zoom of a double click
const LARGEST_ON_MAP = 160; // pixels of a picture on the map

/** @typedef {{ x: number, y: number }} Point */

const inks = { panel: "", text: "" }; // of the scheme; to ask for them takes longer than to draw a picture

/** Ask for the colours of the scheme, once a frame. */
function takeInks() {
  inks.panel = styled("--panel");
  inks.text = styled("--text");
}

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
    this.waiting = false;
    this.stale = true; // whether all pictures have to be drawn again
    /** @type {import("./label_tiles.js").Tile[]} */ this.tiles = []; // of the pictures that are shown
    /** @type {import("./label_tiles.js").Tile[]} */ this.pale = []; // of the others
    this.tiledAs = ""; // the size and the zoom that the tiles were made for
    this.drawn = { zoom: 1, x: 0.5, y: 0.5 }; // how the map was seen when its pictures were drawn
    this.cost = 0; // milliseconds that drawing them took
    this.rest = 0; // a timer
    this.#listen();
    new ResizeObserver(() => this.redraw()).observe(this.canvas);
    whenSheetArrives(() => this.redraw());
  }

  /** Show these pictures; the others are pale. @param {number[]} rows @param {number} side pixels of a picture */
  show(rows, side) {
    this.shown = new Set(rows);
    this.tiledAs = "";
    this.wholeSide = side;
    this.#zoomed();
    this.redraw();
  }

  /** Draw the map after it was zoomed or moved. */
  #zoomed() {
    this.side = Math.min(Math.max(LARGEST_ON_MAP, this.wholeSide), this.wholeSide * this.window.growth);
    byId("fit", HTMLButtonElement).disabled = this.window.isWhole;
    clearTimeout(this.rest);
    if (this.cost < FAST) {
      this.redraw();
      return;
    }
    this.rest = window.setTimeout(() => this.redraw(), REST); // until then, what is drawn is moved and scaled
    this.redrawChoice();
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

  /** Draw what is chosen with the next frame. */
  redrawChoice() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (this.canvas.clientWidth === 0) return; // hidden
      if (this.stale) this.#drawPictures();
      this.stale = false;
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
    const start = performance.now();
    takeInks();
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    for (const canvas of [this.canvas, this.pictures]) {
      canvas.width = Math.round(this.width * ratio);
      canvas.height = Math.round(this.height * ratio);
    }
    const context = contextOf(this.pictures);
    context.scale(ratio, ratio);
    this.#joinTiles();
    context.globalAlpha = PALE;
    for (const tile of this.pale) this.#drawTile(context, tile);
    context.globalAlpha = 1;
    for (const tile of this.tiles) this.#drawTile(context, tile);
    const { zoom, x, y } = this.window;
    this.drawn = { zoom, x, y };
    this.cost = performance.now() - start;
  }

  /** Join pictures into tiles, unless the map was only moved. */
  #joinTiles() {
    const { side, width, height, window } = this;
    const wanted = [side, width, height, window.zoom, shared.generation].join(" ");
    if (wanted === this.tiledAs) return;
    this.tiledAs = wanted;
    const count = shared.names.length;
    const margin = side / 2 + EDGE;
    const x = new Float64Array(count).fill(NaN);
    const y = new Float64Array(count).fill(NaN);
    shared.places.forEach((place, row) => {
      if (!place) return;
      x[row] = place[0] * window.zoom * (width - 2 * margin);
      y[row] = place[1] * window.zoom * (height - 2 * margin);
    });
    const said = Object.keys(shared.said).map(Number); // the labels of a person are seen first
    const order = new Set([...said, ...shared.tray, ...Array(count).keys()]);
    const isShown = (/** @type {number} */ row) => this.shown.has(row);
    this.tiles = tilesOf(x, y, side, [...order].filter(isShown)).reverse(); // the first lies on top
    this.pale = this.shown.size === count ? [] : tilesOf(x, y, side, [...order].filter((row) => !isShown(row)));
  }

  /**
   * A tile in its frame: broken where its class is unsure or not the only one, thick where a person said it.
   * @param {CanvasRenderingContext2D} context
   * @param {import("./label_tiles.js").Tile} tile
   */
  #drawTile(context, { row, rows }) {
    if (!this.#isSeen(row)) return;
    const { side } = this;
    const { x, y } = this.at(row);
    const left = x - side / 2;
    const top = y - side / 2;
    drawSmall(context, row, left, top, side);
    if (rows.length > 1) {
      const words = `×${rows.length.toLocaleString("en")}`; // a bare number would be read as a class
      drawMark(context, left + side + 1 - markWidth(context, words), top + side - 11, words, inks.text);
    }
    const { best, isOne } = classOfTile(rows, shared.best);
    if (best < 0) return;
    const name = shared.classes[best];
    const said = shared.said[row] !== undefined;
    context.strokeStyle = colourOf(name);
    context.lineWidth = said ? 4 : 2;
    context.setLineDash(isOne && shared.certainty[row] >= UNSURE ? [] : [3, 3]);
    context.strokeRect(left - 1, top - 1, side + 2, side + 2);
    context.setLineDash([]);
    if (side >= SMALL_MARK) drawMark(context, left - 1, top - 1, markOf(name), colourOf(name));
  }

  /** Whether a picture is at least partly in the window. @param {number} row */
  #isSeen(row) {
    const { x, y } = this.at(row);
    const { side } = this;
    return x > -side && y > -side && x < this.width + side && y < this.height + side;
  }

  /** Draw what is chosen and suggested over the pictures. */
  drawChoice() {
    takeInks();
    const ratio = window.devicePixelRatio || 1;
    const context = contextOf(this.canvas);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.#copyPictures(context, ratio);
    context.scale(ratio, ratio);
    for (const row of shared.tray) this.#drawSuggestion(context, row);
    for (const row of shared.lit?.meant ?? []) this.#drawLit(context, row);
    for (const row of shared.chosen) this.#drawChosen(context, row);
    if (this.lasso.length < 2) return;
    context.strokeStyle = inks.text;
    context.lineWidth = 2;
    context.beginPath();
    for (const { x, y } of this.lasso) context.lineTo(x, y);
    context.stroke();
    const last = this.lasso[this.lasso.length - 1];
    drawMark(context, last.x + 12, last.y + 6, counted(this.#enclosed().length, "picture"), inks.text);
  }

  /** Copy the pictures, moved and scaled to how the map is seen now. @param {CanvasRenderingContext2D} context @param {number} ratio */
  #copyPictures(context, ratio) {
    const { drawn, window, pictures } = this;
    const margin = this.side / 2 + EDGE;
    const x = margin + window.seen(drawn.x, window.x) * (this.width - 2 * margin);
    const y = margin + window.seen(drawn.y, window.y) * (this.height - 2 * margin);
    const scale = window.zoom / drawn.zoom;
    const isSame = scale === 1 && drawn.x === window.x && drawn.y === window.y;
    if (!isSame) context.setTransform(scale, 0, 0, scale, ratio * x - (scale * pictures.width) / 2, ratio * y - (scale * pictures.height) / 2);
    context.drawImage(pictures, 0, 0);
    context.setTransform(1, 0, 0, 1, 0, 0);
  }

  /** @param {CanvasRenderingContext2D} context @param {number} row */
  #drawSuggestion(context, row) {
    const { x, y } = this.at(row);
    drawMark(context, x + this.side / 2 - 9, y - this.side / 2 - 3, "?", inks.text);
  }

  /**
   * A picture above the others, whole, in a frame of two colours that no class has: black and white, or white and black.
   * @param {CanvasRenderingContext2D} context
   * @param {number} row
   * @param {{ wider: number, outer: number, dash: number[] }} frame how much wider it is than the picture; the width of its outer line
   */
  #drawFramed(context, row, { wider, outer, dash }) {
    const { x, y } = this.at(row);
    const size = this.side + wider;
    drawSmall(context, row, x - this.side / 2, y - this.side / 2, this.side);
    context.lineWidth = outer;
    context.strokeStyle = inks.panel;
    context.strokeRect(x - size / 2, y - size / 2, size, size);
    context.lineWidth = 4;
    context.strokeStyle = inks.text;
    context.setLineDash(dash);
    context.strokeRect(x - size / 2, y - size / 2, size, size);
    context.setLineDash([]);
  }

  /** A picture that lights up: in a broken frame. @param {CanvasRenderingContext2D} context @param {number} row */
  #drawLit(context, row) {
    this.#drawFramed(context, row, { wider: 7, outer: 4, dash: [5, 4] });
  }

  /** @param {CanvasRenderingContext2D} context @param {number} row */
  #drawChosen(context, row) {
    this.#drawFramed(context, row, { wider: 9, outer: 7, dash: [] });
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
      canvas.title = near < 0 ? "" : `${this.#tileWords(near)}${shared.tray.includes(near) ? " (?: worth labelling next)" : ""}`;
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
    canvas.addEventListener("dblclick", (event) => { // a tile opens
      this.window.zoomAt(TILE_ZOOM, this.#share(event));
      this.#zoomed();
    });
  }

  /** A picture and those that its tile stands for, in words. @param {number} row */
  #tileWords(row) {
    const count = this.tiles.find((tile) => tile.row === row)?.rows.length ?? 1;
    return count > 1 ? `${wordsOf(row)}, and ${counted(count - 1, "picture")} like it (a double click opens them)` : wordsOf(row);
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

  /** The picture that is drawn nearest to a point, -1 if none is near. @param {Point} point */
  #nearest(point) {
    let best = -1;
    let least = NEAR ** 2;
    for (const { row } of this.tiles) {
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
  const width = markWidth(context, text);
  context.fillStyle = inks.panel;
  context.fillRect(left, top, width, 12);
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.strokeRect(left + 0.5, top + 0.5, width - 1, 11);
  context.fillStyle = inks.text;
  context.fillText(text, left + 2.5, top + 9.5);
}

/** The width of a sign. @param {CanvasRenderingContext2D} context @param {string} text */
function markWidth(context, text) {
  context.font = "bold 10px system-ui, sans-serif";
  return context.measureText(text).width + 5;
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
