// What the labelling page knows, and how it asks its server. The server has the session; every tab follows it.
import { byId } from "./dom.js";

/**
 * What labels changed: how many there were, pictures whose class changed, the estimated error before and after.
 * @typedef {{ labels: number, pictures: number, before: number | null, after: number | null, cause: string }} Change
 */

/**
 * A blind check: pictures drawn at random, and the answers by row.
 * @typedef {{ rows: number[], answers: Record<string, string> }} Check
 */

/**
 * What the page knows.
 * @typedef {object} Shared
 * @property {{ name: string, side: number, columns: number, perSheet: number, notSure: string, noneOfThese: string }} page
 * @property {string[]} names of the pictures
 * @property {(number[] | null)[]} places on the map, from 0 to 1; null for pictures that are not described yet
 * @property {number[][]} sizes of the pictures in their files: width and height in pixels
 * @property {string[]} classes in the order of their numbers; the first is "none of these"
 * @property {number[]} slots the number of each class: its key and its colour
 * @property {number[]} best class of every picture, -1 for none
 * @property {number[]} certainty in %
 * @property {Record<string, number | string>} said class by row, or "not sure"
 * @property {number[]} tray suggestions
 * @property {number} undo actions that can be undone
 * @property {number} revision
 * @property {number} generation of the places on the map
 * @property {boolean} follows whether the classes of other pictures follow the labels already
 * @property {string} behind how far the work behind the page is, or ""
 * @property {string} trouble what went wrong while classes followed, or ""
 * @property {Change | null} change what the last labels changed
 * @property {Check | null} check a blind check that is under way
 * @property {string} measured the error that the last check measured, in words
 * @property {number[]} confused the numbers of two classes between which most pictures are in doubt
 * @property {{ row: number, expected: string, probability: number }[]} suspects labels that look wrong
 * @property {Set<number>} chosen rows
 * @property {number} current the row chosen last, -1 for none
 * @property {string | null} armed the class that a click gives while no picture is chosen
 * @property {Set<number>} takenOut rows that are not to be confirmed
 * @property {import("./label_lit.js").Lit | null} lit pictures most like the one that was labelled last
 */

/** @type {Shared} */
export const shared = {
  page: JSON.parse(byId("data", HTMLElement).textContent ?? ""),
  names: [],
  places: [],
  sizes: [],
  classes: [],
  slots: [],
  best: [],
  certainty: [],
  said: {},
  tray: [],
  undo: 0,
  revision: -1,
  generation: 0,
  follows: true,
  behind: "",
  trouble: "",
  change: null,
  check: null,
  measured: "",
  confused: [],
  suspects: [],
  chosen: new Set(),
  current: -1,
  armed: null,
  takenOut: new Set(),
  lit: null,
};

/** Show a message. @param {string} text @param {boolean} [isBad] whether something went wrong */
export function tell(text, isBad = false) {
  const message = byId("message", HTMLElement);
  message.textContent = text;
  message.classList.toggle("bad", isBad);
}

const LOST = "whatwhere does not answer: it has stopped, or it is busy. Labels from before are saved; those that you give now follow once it answers.";
const AGAIN = 500; // milliseconds before what a person said is sent again

/** Ask the server. @param {string} path @param {object} [body] */
export async function ask(path, body) {
  const post = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  try {
    const answer = await (await fetch(path, body ? post : {})).json();
    if (answer.failed) tell(answer.failed, true);
    else if (byId("message", HTMLElement).textContent === LOST) tell(""); // it answers again
    return answer;
  } catch {
    tell(LOST, true);
    return { failed: true };
  }
}

/** Tell the server what a person said, again and again until it answers: no label is lost. @param {string} path @param {object} body */
export async function deliver(path, body) {
  for (;;) {
    const answer = await ask(path, body);
    if (answer.failed !== true) return answer;
    await new Promise((resolve) => setTimeout(resolve, AGAIN));
  }
}

/** How many of something there are, in words. @param {number} count @param {string} one @param {string} several */
export function counted(count, one, several = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : several}`;
}

/** The class of a row that a person gave, or null. @param {number} row */
export function saidClass(row) {
  const said = shared.said[row];
  return typeof said === "number" ? shared.classes[said] : null;
}

/** What a picture is, in words. @param {number} row */
export function wordsOf(row) {
  const name = shared.names[row];
  if (shared.said[row] === shared.page.notSure) return `${name}: not sure`;
  const said = saidClass(row);
  if (said !== null) return `${name}: ${said}, your label`;
  if (shared.check !== null) return name; // what the program thinks would not be blind
  if (shared.best[row] < 0) return `${name}: no class yet`;
  return `${name}: ${shared.classes[shared.best[row]]}, ${shared.certainty[row]} %`;
}

/** The classes in use; "none of these" comes last, if it is used. */
export function usedClasses() {
  const used = shared.classes.slice(1);
  const noneIsUsed = Object.values(shared.said).includes(0);
  return noneIsUsed ? [...used, shared.classes[0]] : used;
}

/** The number of a class. @param {string} name */
export function slotOf(name) {
  return shared.slots[shared.classes.indexOf(name)] ?? 0;
}

/**
 * The class that a digit gives: the one that is called by it, otherwise the one with this number; null for none.
 * @param {string} digit
 */
export function classOfDigit(digit) {
  if (shared.classes.includes(digit)) return digit;
  const number = shared.slots.indexOf(Number(digit));
  return number < 0 ? null : shared.classes[number];
}

/** The key that gives a class, or "". @param {string} name */
export function keyOf(name) {
  if (/^[0-9]$/.test(name)) return name;
  const slot = String(slotOf(name));
  return slot.length === 1 && classOfDigit(slot) === name ? slot : "";
}
