// The colours of classes. They differ in lightness as well as in hue, for people who see fewer colours, and are never
// the only cue: the key of a class stands next to its colour.
import { marksOf } from "./label_names.js";
import { keyOf, shared, slotOf } from "./label_state.js";

/** Of the classes 1, 2, 3, …; after the last the first follows again. The first six are those of Okabe and Ito. */
export const CLASS_COLOURS = [
  "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b3a125", "#5b3a8c", "#7a4b12", "#7f9c00",
];
export const NONE_COLOUR = "#8a8a8a"; // of "none of these"

const STORED_AS = `whatwhere colours of ${shared.page.name}`;

/** The colours that a person chose, by the name of the class: this browser keeps them. @type {Map<string, number>} */
const chosen = new Map(stored());

/** What this browser kept; nothing where it keeps nothing. @returns {[string, number][]} */
function stored() {
  try {
    const pairs = JSON.parse(localStorage.getItem(STORED_AS) ?? "[]");
    return Array.isArray(pairs) ? pairs.filter(([name, index]) => typeof name === "string" && index in CLASS_COLOURS) : [];
  } catch {
    return [];
  }
}

/** Which of the colours a class has. @param {string} name */
export function colourIndexOf(name) {
  return chosen.get(name) ?? (slotOf(name) - 1) % CLASS_COLOURS.length;
}

/** Give a class one of the colours; until then its number decides. @param {string} name @param {number} index */
export function chooseColour(name, index) {
  chosen.set(name, index);
  try {
    localStorage.setItem(STORED_AS, JSON.stringify([...chosen]));
  } catch {
    // without storage the colour stays until the page is closed
  }
}

/** The colour of a class. @param {string} name */
export function colourOf(name) {
  if (slotOf(name) === 0) return NONE_COLOUR;
  return CLASS_COLOURS[colourIndexOf(name)];
}

/** The mark of a class, its second cue: its key or, where it has none, a few of its letters. @param {string} name */
export function markOf(name) {
  if (slotOf(name) === 0) return "–";
  return keyOf(name) || (letterMarks().get(name) ?? name.slice(0, 2));
}

/** @type {{ classes: string[], count: number, marks: Map<string, string> }} */
let lettered = { classes: [], count: 0, marks: new Map() };

/** The marks of the classes without a key; kept, because every picture asks for its own. */
function letterMarks() {
  const { classes } = shared;
  if (lettered.classes !== classes || lettered.count !== classes.length) {
    const marks = marksOf(classes.slice(1).filter((name) => keyOf(name) === ""));
    lettered = { classes, count: classes.length, marks };
  }
  return lettered.marks;
}
