// Convolutions between a layer's maps and the signal below, down (reconstruct) and up (propagate), by the faster way.
import { correlate, planesOf } from "./correlate.js";
import { filterValues, tiledDown, tiledUp } from "./winograd.js";

/**
 * A layer's filters, ready to be applied.
 * @typedef {object} Filters
 * @property {number} size side K of the square filters
 * @property {number} below maps of the signal below
 * @property {number} height of that signal
 * @property {number} width
 * @property {import("./correlate.js").Planes} down
 * @property {import("./correlate.js").Planes} up
 * @property {import("./winograd.js").FilterValues | null} values for tiles; null where they would not pay
 */

const CONNECTIONS = 3; // from this many for each map on, 5×5 filters are faster by tiles: measured
const DENSE = 1 / 8; // a signal with fewer non-zeros is faster tap by tap: measured

/**
 * @param {Float32Array} filters [below, maps, K, K]
 * @param {Uint8Array} connected [below, maps]
 * @param {number} below
 * @param {number} maps
 * @param {number} size
 * @param {number} height of the signal below
 * @param {number} width
 * @returns {Filters}
 */
export function filtersOf(filters, connected, below, maps, size, height, width) {
  const down = planesOf(filters, connected, below, maps, size, "down");
  const up = planesOf(filters, connected, below, maps, size, "up");
  const tiled = size === 5 && up.from.length > CONNECTIONS * (below + maps);
  return { size, below, height, width, down, up, values: tiled ? filterValues(up, below, maps, height, width) : null };
}

/**
 * The same filters, applied tap by tap: zeros stay exactly 0, without the rounding errors of tiles.
 * @param {Filters} filters
 * @returns {Filters}
 */
export const tapByTap = (filters) => ({ ...filters, values: null });

/**
 * The signal below, reconstructed from maps z.
 * @param {Float64Array} z [maps, height + K - 1, width + K - 1]
 * @param {Filters} filters
 * @param {Float64Array} signal [below, height, width], written
 */
export function convolveDown(z, { size, height, width, down, values }, signal) {
  if (values && isDense(z)) tiledDown(z, signal, values);
  else correlate(z, height + size - 1, width + size - 1, signal.fill(0), down);
}

/**
 * A signal carried up to maps z: the adjoint of `convolveDown`.
 * @param {Float64Array} signal [below, height, width]
 * @param {Filters} filters
 * @param {Float64Array} z [maps, height + K - 1, width + K - 1], written
 */
export function convolveUp(signal, { size, below, height, width, up, values }, z) {
  if (values && isDense(signal)) {
    tiledUp(signal, z, values);
    return;
  }
  const border = size - 1;
  const [tall, wide] = [height + 2 * border, width + 2 * border];
  const padded = new Float64Array(below * tall * wide);
  for (let row = 0; row < below * height; row++) {
    const target = (Math.floor(row / height) * tall + (row % height) + border) * wide + border;
    padded.set(signal.subarray(row * width, (row + 1) * width), target);
  }
  correlate(padded, tall, wide, z.fill(0), up);
}

/** @param {Float64Array} signal */
function isDense(signal) {
  let left = DENSE * signal.length;
  for (let i = 0; i < signal.length; i++) if (signal[i] !== 0 && --left < 0) return true;
  return false;
}
