// After a label, the pictures that are most like it light up on the map and in a strip: Enter gives them its class, too.
import { byId, make } from "./dom.js";
import { Lit } from "./label_lit.js";
import { smallPicture } from "./label_small.js";
import { ask, counted, shared } from "./label_state.js";

let redrawLit = () => {}; // shows what changed, also on the map

/** Show what lights up. */
export function showLit() {
  const { lit } = shared;
  const strip = byId("like", HTMLElement);
  strip.hidden = lit === null;
  if (lit === null) return;
  const hadFocus = strip.contains(document.activeElement);
  const count = lit.meant.length;
  byId("like-words", HTMLElement).textContent = `Most like it. Also ${lit.name}?`;
  const give = byId("like-give", HTMLButtonElement);
  give.replaceChildren(`${counted(count, "picture")}: ${lit.name} `, make("kbd", { "aria-hidden": "true" }, "Enter"));
  give.disabled = count === 0;
  byId("like-cells", HTMLElement).replaceChildren(...lit.rows.map((row) => litCell(lit, row)));
  if (hadFocus) focusLit(lit);
}

/** @param {Lit} lit @param {number} row */
function litCell(lit, row) {
  const isOut = lit.out.has(row);
  const words = `${shared.names[row]}${isOut ? ", taken out" : ""}`;
  const cell = make("button", { class: isOut ? "cell out" : "cell", title: words, "aria-label": words, "aria-pressed": String(!isOut), "data-lit": String(row) });
  cell.append(smallPicture(row));
  return cell;
}

/** @param {Lit} lit */
function focusLit(lit) {
  const row = lit.rows[Math.max(lit.at, 0)];
  const cell = byId("like-cells", HTMLElement).querySelector(`[data-lit="${row}"]`);
  if (cell instanceof HTMLElement) cell.focus({ preventScroll: true });
}

/**
 * Let the pictures that are most like a picture light up.
 * @param {number} row that got its class just now
 * @param {string} name of the class
 * @param {() => boolean} isLast whether it is still the last label
 * @returns {Promise<boolean>} whether any lights up
 */
export async function lightUp(row, name, isLast) {
  const found = await ask(`like/${row}`);
  if (found.failed || !isLast() || found.rows.length === 0) return false;
  const rows = found.rows.filter((/** @type {number} */ one) => shared.said[one] === undefined && one !== shared.current);
  if (rows.length === 0) return false;
  shared.lit = new Lit(name, rows, performance.now());
  return true;
}

/**
 * Follow a key outside of the field.
 * @param {string} key
 * @param {boolean} isInside whether the strip has the focus
 * @param {() => void} confirm
 * @returns {boolean} whether the key was meant for the pictures that light up
 */
export function keyOfLit(key, isInside, confirm) {
  const { lit } = shared;
  if (lit === null) return false;
  if (key === "Enter") {
    if (!lit.isSeen(performance.now()) || lit.meant.length === 0) return false;
    confirm();
    return true;
  }
  if (!isInside && key !== "ArrowDown") return false; // the other arrows go through the suggestions
  if (!lit.follow(key)) return false;
  redrawLit();
  focusLit(lit);
  return true;
}

/**
 * @param {() => void} confirm
 * @param {() => void} putOut
 * @param {() => void} show what changed
 */
export function litStrip(confirm, putOut, show) {
  redrawLit = show;
  byId("like-give", HTMLButtonElement).addEventListener("click", confirm);
  byId("like-close", HTMLButtonElement).addEventListener("click", putOut);
  byId("like-cells", HTMLElement).addEventListener("click", (event) => {
    const cell = event.target instanceof Element ? event.target.closest("[data-lit]") : null;
    if (!(cell instanceof HTMLElement) || shared.lit === null) return;
    const row = Number(cell.dataset.lit);
    shared.lit.at = shared.lit.rows.indexOf(row);
    shared.lit.toggle(row);
    redrawLit();
  });
}
