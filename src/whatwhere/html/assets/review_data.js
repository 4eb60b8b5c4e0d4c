// What the page of anomalies shows: scores, names and pictures, which are parsed a part at a time.

/**
 * @typedef {object} Findings
 * @property {string[]} names of the pictures, the least normal first
 * @property {number[]} scores
 * @property {number[]} areas the share of each picture that is inside outlines
 * @property {string[][]} evidence words on the kinds of evidence above 1
 * @property {number[] | null} normal scores of other pictures, which the detector learned from, the largest first
 * @property {[number, number][]} intervals of the rate of false alarms, by the number of normal pictures above a threshold
 * @property {number} threshold of the detector
 * @property {number} perPart small pictures in a part
 * @property {number} perLargePart
 * @property {number[]} large the part and the place in it of each large picture, by row; -1 without one
 * @property {Record<string, string>} kinds
 * @property {string} rates
 * @property {string} learned
 * @property {string} outline
 * @property {string} beyond
 * @property {string} folder of the pictures
 * @property {string} scoreCommand
 * @property {string} fitCommand
 */

/**
 * @typedef {object} LargePicture
 * @property {number} width
 * @property {number} height
 * @property {string} picture
 * @property {string} map
 * @property {string} path of the outline
 * @property {[number, number, number, number]} place x, y, width and height of the least normal place
 * @property {string[]} patches the least normal place, then normal ones
 */

/** @param {string} id */
export function embedded(id) {
  const text = document.getElementById(id)?.textContent;
  if (!text) throw new Error(`the page has no data with the id ${id}`);
  return JSON.parse(text);
}

/** @type {Map<string, any[]>} */
const parts = new Map();
const MOST_PARTS = 12; // that are kept parsed

/** A part of the pictures, parsed when it is first seen. @param {string} id */
function part(id) {
  const known = parts.get(id);
  if (known) return known;
  const read = embedded(id);
  parts.set(id, read);
  const oldest = parts.keys().next().value;
  if (parts.size > MOST_PARTS && oldest !== undefined) parts.delete(oldest);
  return read;
}

/** The small picture of a row, and its map. @param {Findings} data @param {number} row @returns {[string, string]} */
export const smallPicture = (data, row) => part(`small-${Math.floor(row / data.perPart)}`)[row % data.perPart];

/** The large picture of a row, if it has one. @param {Findings} data @param {number} row @returns {LargePicture | null} */
export function largePicture(data, row) {
  const at = data.large[row];
  if (at === undefined || at < 0) return null;
  return part(`large-${Math.floor(at / data.perLargePart)}`)[at % data.perLargePart];
}
