// A grid of any number of pictures: only the cells in sight exist.
import { byId, make } from "./dom.js";

const CELL_WIDTH = 148; // pixels: width at least, and height of the picture
const CELL_HEIGHT = 190; // of a cell with its words
const LINES_MORE = 2; // rows above and below those in sight

/**
 * @typedef {object} GridActions
 * @property {(row: number) => HTMLElement} draw the button of a row of the data
 * @property {(row: number) => void} choose
 */

export class Grid {
  /** @param {GridActions} actions */
  constructor(actions) {
    this.actions = actions;
    this.frame = byId("grid", HTMLElement);
    this.list = byId("cells", HTMLElement);
    /** @type {number[]} */
    this.rows = [];
    /** @type {Map<number, HTMLElement>} */
    this.cells = new Map();
    this.frame.addEventListener("scroll", () => this.update());
    new ResizeObserver(() => this.update()).observe(this.frame);
  }

  get columns() {
    return Math.max(1, Math.floor(this.frame.clientWidth / CELL_WIDTH));
  }

  /** Show these rows of the data, in this order. @param {number[]} rows */
  show(rows) {
    this.rows = rows;
    this.redraw();
  }

  /** Draw all cells in sight again. */
  redraw() {
    const focused = document.activeElement;
    const row = focused instanceof HTMLElement && this.list.contains(focused) ? Number(focused.dataset.row) : -1;
    this.cells.clear();
    this.list.replaceChildren();
    this.update();
    if (row >= 0) this.button(row)?.focus({ preventScroll: true });
  }

  /** Add the cells that came into sight, and drop those that left it. */
  update() {
    const { columns } = this;
    const lines = Math.ceil(this.rows.length / columns);
    this.list.style.height = `${lines * CELL_HEIGHT}px`;
    const first = Math.max(0, Math.floor(this.frame.scrollTop / CELL_HEIGHT) - LINES_MORE);
    const last = Math.min(lines, Math.ceil((this.frame.scrollTop + this.frame.clientHeight) / CELL_HEIGHT) + LINES_MORE);
    const wanted = new Set();
    const width = this.frame.clientWidth / columns;
    for (let at = first * columns; at < Math.min(last * columns, this.rows.length); at += 1) {
      const row = this.rows[at];
      wanted.add(row);
      let cell = this.cells.get(row);
      if (!cell) {
        cell = make("li", {}, this.actions.draw(row));
        this.cells.set(row, cell);
        this.list.append(cell);
      }
      cell.style.width = `${width}px`;
      cell.style.transform = `translate(${(at % columns) * width}px, ${Math.floor(at / columns) * CELL_HEIGHT}px)`;
      cell.setAttribute("aria-posinset", String(at + 1));
      cell.setAttribute("aria-setsize", String(this.rows.length));
    }
    for (const [row, cell] of this.cells) {
      if (wanted.has(row)) continue;
      cell.remove();
      this.cells.delete(row);
    }
  }

  /** @param {number} row */
  button(row) {
    return this.cells.get(row)?.querySelector("button") ?? null;
  }

  /** Scroll a row of the data into sight. @param {number} row */
  reveal(row) {
    const at = this.rows.indexOf(row);
    if (at < 0) return;
    const top = Math.floor(at / this.columns) * CELL_HEIGHT;
    const bottom = top + CELL_HEIGHT - this.frame.clientHeight;
    if (this.frame.scrollTop > top) this.frame.scrollTop = top;
    else if (this.frame.scrollTop < bottom) this.frame.scrollTop = bottom;
    this.update();
  }

  /** The row that a key leads to. @param {string} key @param {number} row @returns {number} */
  towards(key, row) {
    const at = this.rows.indexOf(row);
    /** @type {Record<string, number>} */
    const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - this.columns, ArrowDown: at + this.columns, Home: 0, End: this.rows.length - 1 };
    const to = moves[key];
    return to === undefined || to < 0 || to >= this.rows.length ? row : this.rows[to];
  }
}
