// Pictures as buttons, in the tray and in the grid. The grid has a cell for every picture that is seen, and no other.
import { byId, make } from "./dom.js";
import { colourOf, markOf } from "./label_colours.js";
import { smallPicture } from "./label_small.js";
import { shared, wordsOf } from "./label_state.js";

const GAP = 4; // pixels between cells
const BORDER = 14; // pixels that a cell has around its picture
const BEYOND = 2; // rows above and below what is seen

/** @typedef {(row: number, event: MouseEvent) => void} OnClick */

/** A picture as a button. @param {number} row @param {OnClick} onClick */
function cell(row, onClick) {
  const words = wordsOf(row);
  const out = shared.takenOut.has(row);
  const button = make("button", {
    class: "cell",
    title: words,
    "aria-pressed": String(shared.chosen.has(row)),
    "data-row": String(row),
    onclick: (/** @type {MouseEvent} */ event) => onClick(row, event),
  });
  button.append(smallPicture(row), make("span", { class: "hidden" }, out ? `${words}; taken out` : words));
  if (shared.best[row] >= 0) {
    const name = shared.classes[shared.best[row]];
    button.style.setProperty("--hue", colourOf(name));
    button.append(make("span", { class: "mark", "aria-hidden": "true" }, markOf(name)));
    button.classList.toggle("unsure", shared.certainty[row] < 60);
  }
  button.classList.toggle("said", shared.said[row] !== undefined);
  button.classList.toggle("out", out);
  button.classList.toggle("lit", shared.lit?.meant.includes(row) ?? false);
  return button;
}

/** The row of the cell that has the focus, or null. @param {HTMLElement} place */
function focusedRow(place) {
  const focused = document.activeElement;
  return focused instanceof HTMLElement && place.contains(focused) ? focused.dataset.row ?? null : null;
}

/**
 * Fill a place with cells; a cell keeps the focus.
 * @param {HTMLElement} place
 * @param {number[]} rows
 * @param {OnClick} onClick
 */
export function fillCells(place, rows, onClick) {
  const focused = focusedRow(place);
  place.replaceChildren(...rows.map((row) => cell(row, onClick)));
  keepFocus(place, focused);
}

/** Give the cell of a row the focus, or the first if it is gone. @param {HTMLElement} place @param {string | null} focused */
function keepFocus(place, focused) {
  if (focused === null || focusedRow(place) === focused) return;
  const again = place.querySelector(`[data-row="${focused}"]`) ?? place.firstElementChild;
  if (again instanceof HTMLElement) again.focus({ preventScroll: true });
}

/** The grid of all pictures: it scrolls over all, and draws those that are seen. */
export class Grid {
  /** @param {OnClick} onClick */
  constructor(onClick) {
    this.onClick = onClick;
    this.scroller = byId("grid", HTMLElement);
    this.all = byId("grid-all", HTMLElement);
    this.seen = byId("grid-seen", HTMLElement);
    /** @type {number[]} */ this.rows = [];
    /** @type {Map<number, HTMLElement>} */ this.cells = new Map(); // those that are drawn, by their rows
    this.side = 48;
    this.drawn = "";
    this.scroller.addEventListener("scroll", () => this.#draw(false));
    new ResizeObserver(() => this.#draw(false)).observe(this.scroller);
  }

  get columns() {
    const width = Math.floor(this.all.getBoundingClientRect().width) || 600; // without the padding of the scroller
    return Math.max(1, Math.floor((width + GAP) / (this.side + BORDER + GAP)));
  }

  get rowHeight() {
    return this.side + BORDER + GAP;
  }

  /** Show these pictures. @param {number[]} rows @param {number} side pixels of a picture */
  show(rows, side) {
    this.rows = rows;
    this.side = side;
    this.redraw();
  }

  /** Draw the cells that are seen again. */
  redraw() {
    this.#draw(true);
  }

  /** @param {boolean} changed whether cells that are drawn have changed */
  #draw(changed) {
    const { columns, rowHeight } = this;
    const lines = Math.ceil(this.rows.length / columns);
    this.all.style.height = `${lines * rowHeight}px`;
    const top = Math.floor(this.scroller.scrollTop / rowHeight);
    const first = Math.max(0, Math.min(top, lines - 1) - BEYOND);
    const last = Math.min(lines, top + Math.ceil((this.scroller.clientHeight || 600) / rowHeight) + BEYOND);
    const place = `${first} ${last} ${columns} ${this.side}`;
    if (!changed && place === this.drawn) return;
    this.drawn = place;
    this.seen.style.setProperty("--side", `${this.side}px`);
    const focused = focusedRow(this.seen);
    const known = changed ? new Map() : this.cells;
    this.cells = new Map();
    for (let n = first * columns; n < Math.min(last * columns, this.rows.length); n++) {
      const one = known.get(this.rows[n]) ?? cell(this.rows[n], this.onClick);
      const x = (n % columns) * (this.side + BORDER + GAP);
      const y = Math.floor(n / columns) * rowHeight;
      one.style.transform = `translate(${x}px, ${y}px)`;
      this.cells.set(this.rows[n], one);
    }
    this.#attach();
    keepFocus(this.seen, focused);
  }

  /** Put the cells into the page. Those that stay are not touched: while it is scrolled, they are most, and to lay them out takes time. */
  #attach() {
    const drawn = new Set(this.cells.values());
    for (const one of [...this.seen.children]) {
      if (!drawn.has(/** @type {HTMLElement} */ (one))) one.remove();
    }
    let next = this.seen.firstElementChild;
    for (const one of this.cells.values()) {
      if (one === next) next = next.nextElementSibling;
      else this.seen.insertBefore(one, next);
    }
  }

  /** Scroll to a picture and give it the focus. @param {number} row */
  focus(row) {
    const line = Math.floor(this.rows.indexOf(row) / this.columns);
    if (line < 0) return;
    const top = line * this.rowHeight;
    const { scrollTop, clientHeight } = this.scroller;
    if (top < scrollTop) this.scroller.scrollTop = top;
    if (top + this.rowHeight > scrollTop + clientHeight) this.scroller.scrollTop = top + this.rowHeight - clientHeight;
    this.#draw(false);
    const found = this.seen.querySelector(`[data-row="${row}"]`);
    if (found instanceof HTMLElement) found.focus({ preventScroll: true });
  }
}

/** How many cells the first line of a place has. @param {HTMLElement} place */
export function cellsAcross(place) {
  const cells = /** @type {HTMLElement[]} */ ([...place.children]);
  return cells.filter((one) => one.offsetTop === cells[0].offsetTop).length;
}
