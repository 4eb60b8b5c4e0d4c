// The keyboard. Letters start a name for the chosen pictures; digits and shortcuts work everywhere outside of the field.
//
// Some shortcuts are letters, and names begin with the same letters. A letter that is followed by another one at once is
// the start of a name; alone, it is the shortcut. Enter opens the field for those who type slowly.
import { byId, make } from "./dom.js";
import { enterField, leaveField } from "./label_classes.js";
import { classOfDigit, shared } from "./label_state.js";

const ALONE = 450; // milliseconds after which a letter is alone

/** All keys, as the page shows them. @type {[keys: string, what: string][]} */
export const KEYS = [
  ["letters", "start a name for the chosen pictures"],
  ["Enter", "give the name and go to the next suggestion; outside of the field: go to the field"],
  ["Tab", "in the field: complete the name of a class"],
  ["1 … 9", "assign a class by its number"],
  ["0", "none of these: belongs to no other class"],
  ["n", "not sure: leave the picture out"],
  ["x, Delete", "remove the label"],
  ["u, Ctrl+Z", "undo"],
  ["z", "show the picture large; while you check a class: the picture under the pointer, which stays in the class"],
  ["w", "why does it have this class?"],
  ["arrows", "go to another picture: in the suggestions, in the grid, on the map"],
  ["Enter, ↓", "while pictures light up: give them the class, too; ↓ goes to them, then ← → and ↓ take one out, ↑ puts it back"],
  ["F2", "on a class: rename it, choose its colour, join it with another, or remove its labels"],
  ["+, −", "on the map: zoom; a wheel and two fingers zoom as well, Alt and a drag move the map"],
  ["Space", "choose the picture, or take it out"],
  ["Ctrl+Enter", "confirm all pictures of the class on screen"],
  ["Ctrl+S", "save the classifier"],
  ["Esc", "close the field or the large picture, release a pressed class, or clear the selection"],
  ["?", "show these keys"],
];

/**
 * @typedef {object} KeyActions
 * @property {(name: string | null) => void} give a class to the chosen pictures; null takes the label away
 * @property {() => void} undo
 * @property {() => void} why
 * @property {() => void} large shows a picture large, or closes it
 * @property {() => void} save
 * @property {() => void} confirm
 * @property {() => void} leave what is pressed or chosen
 * @property {(row: number) => void} pick a picture by Enter
 * @property {(key: string, isInside: boolean) => boolean} lit a key for pictures that light up; whether it was
 * @property {(key: string, cell: HTMLElement | null) => boolean} move by an arrow key; whether it moved
 */

/** @param {KeyActions} actions */
export function keyboard(actions) {
  /** @type {Record<string, () => void>} */
  const shortcuts = {
    u: actions.undo,
    n: () => actions.give(shared.page.notSure),
    x: () => actions.give(null),
    w: actions.why,
    z: actions.large,
  };
  let waiting = ""; // a letter that may be alone
  let timer = 0;

  /** Wait for what follows a letter, or for nothing any more. @param {string} letter */
  const waitAfter = (letter) => {
    clearTimeout(timer);
    waiting = letter;
    document.body.toggleAttribute("data-letter-waits", letter !== "");
    if (letter) timer = window.setTimeout(fire, ALONE);
  };

  const fire = () => {
    const letter = waiting;
    waitAfter("");
    if (letter) shortcuts[letter]();
  };

  /** @param {string} letter */
  const typeLetter = (letter) => {
    const first = waiting;
    waitAfter("");
    if (first === "" && letter in shortcuts) {
      waitAfter(letter);
      return;
    }
    byId("large", HTMLDialogElement).close();
    enterField(first + letter);
  };

  /** @param {KeyboardEvent} event */
  const withControl = (event) => {
    const key = event.key.toLowerCase();
    if (key === "z") actions.undo();
    else if (key === "s") actions.save();
    else if (key === "enter") actions.confirm();
    else return false;
    return true;
  };

  /** A key outside of the field; returns whether it was meant for the page. @param {KeyboardEvent} event */
  const outside = (event) => {
    const { key, target } = event;
    if (/^\p{L}$/u.test(key)) {
      typeLetter(key);
      return true;
    }
    fire();
    const isInside = target instanceof HTMLElement && target.closest("#like-cells") !== null;
    if (!usesArrows(target) && (isInside || !usesEnter(target) || isCell(target)) && actions.lit(key, isInside)) return true;
    const cell = target instanceof HTMLElement && target.dataset.row !== undefined ? target : null;
    if (/^[0-9]$/.test(key)) {
      const name = classOfDigit(key);
      if (name === null) enterField(key);
      else actions.give(name);
      return true;
    }
    if (key === "Delete") {
      actions.give(null);
      return true;
    }
    if (key.startsWith("Arrow")) return !usesArrows(target) && actions.move(key, cell);
    if (key !== "Enter") return false;
    if (cell !== null && !shared.chosen.has(Number(cell.dataset.row))) {
      actions.pick(Number(cell.dataset.row));
      return true;
    }
    if (cell === null && usesEnter(target)) return false;
    enterField("");
    return true;
  };

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing) return;
    if (event.key === "Escape") {
      waitAfter("");
      if (leaveOneThing(actions)) event.preventDefault();
      return;
    }
    if (byId("keys", HTMLDialogElement).open || byId("rename", HTMLDialogElement).open || byId("try", HTMLDialogElement).open || isText(event.target)) return;
    let used = false;
    if (event.ctrlKey || event.metaKey) used = withControl(event);
    else if (!event.altKey) used = outside(event);
    if (used) event.preventDefault();
  });
}

/** Leave what is in front; returns whether the browser is to do nothing else. @param {KeyActions} actions */
function leaveOneThing(actions) {
  for (const id of ["keys", "large", "rename", "try"]) {
    const dialog = byId(id, HTMLDialogElement);
    if (dialog.open) {
      dialog.close();
      return true;
    }
  }
  if (!byId("tour", HTMLElement).hidden) return false; // the tour ends itself
  const menu = byId("exchange", HTMLDetailsElement);
  if (menu.open) {
    menu.open = false;
    menu.querySelector("summary")?.focus();
    return true;
  }
  if (document.activeElement === byId("class-name", HTMLInputElement)) leaveField();
  else actions.leave();
  return true;
}

/** Whether an element is a picture of the page. @param {EventTarget | null} target */
const isCell = (target) => target instanceof HTMLElement && target.dataset.row !== undefined;

/** @param {EventTarget | null} target */
const isText = (target) => target instanceof HTMLInputElement && target.type !== "range" && target.type !== "file";

/** @param {EventTarget | null} target */
const usesArrows = (target) =>
  target instanceof HTMLSelectElement || target instanceof HTMLInputElement || (target instanceof HTMLElement && target.closest("#map, #large") !== null);

/** @param {EventTarget | null} target */
const usesEnter = (target) => target instanceof HTMLElement && target.closest("button, a, summary, select, input, dialog") !== null;

/** The list of all keys, which also opens while the program learns. */
export function keysDialog() {
  const dialog = byId("keys", HTMLDialogElement);
  const list = byId("key-list", HTMLElement);
  for (const [keys, what] of KEYS) list.append(make("dt", {}, make("kbd", {}, keys)), make("dd", {}, what));
  byId("show-keys", HTMLButtonElement).addEventListener("click", () => dialog.showModal());
  byId("keys-close", HTMLButtonElement).addEventListener("click", () => dialog.close());
  document.addEventListener("keydown", (event) => {
    if (event.key !== "?" || event.defaultPrevented || event.isComposing || dialog.open || isText(event.target)) return;
    dialog.showModal();
    event.preventDefault();
  });
}
