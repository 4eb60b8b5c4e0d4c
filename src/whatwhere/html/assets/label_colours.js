// The colours of classes. They differ in lightness as well as in hue, for people who see fewer colours, and are never
// the only cue: the key of a class stands next to its colour.
import { keyOf, slotOf } from "./label_state.js";

/** Of the classes 1, 2, 3, …; after the last the first follows again. The first six are those of Okabe and Ito. */
export const CLASS_COLOURS = [
  "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b3a125", "#5b3a8c", "#7a4b12", "#7f9c00",
];
export const NONE_COLOUR = "#8a8a8a"; // of "none of these"

/** The colour of a class. @param {string} name */
export function colourOf(name) {
  const slot = slotOf(name);
  if (slot === 0) return NONE_COLOUR;
  return CLASS_COLOURS[(slot - 1) % CLASS_COLOURS.length];
}

/** The mark of a class, its second cue: its key or, where it has none, how its name begins. @param {string} name */
export function markOf(name) {
  if (slotOf(name) === 0) return "–";
  return keyOf(name) || name.slice(0, 2);
}
