// Convolutions between a layer's maps and the signal below, down (reconstruct) and up (propagate), tap by tap: what is
// zero is skipped, and stays exactly zero.

/**
 * Pairs of connected maps with their filter taps, in the order in which the loop reads them.
 * @typedef {object} Planes
 * @property {number} size side K of the square filters
 * @property {Int32Array} from map read by each pair
 * @property {Int32Array} to map written by each pair
 * @property {Float64Array} taps [pairs, K, K]
 */

/**
 * A layer's filters, ready to be applied.
 * @typedef {object} Filters
 * @property {number} size side K of the square filters
 * @property {number} below maps of the signal below
 * @property {number} height of that signal
 * @property {number} width
 * @property {Planes} down
 * @property {Planes} up
 */

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
  const [down, up] = /** @type {const} */ (["down", "up"]).map((direction) => planesOf(filters, connected, below, maps, size, direction));
  return { size, below, height, width, down, up };
}

/**
 * The signal below, reconstructed from maps z.
 * @param {Float64Array} z [maps, height + K - 1, width + K - 1]
 * @param {Filters} filters
 * @param {Float64Array} signal [below, height, width], written
 */
export function convolveDown(z, { size, height, width, down }, signal) {
  correlate(z, height + size - 1, width + size - 1, signal.fill(0), down);
}

/**
 * A signal carried up to maps z: the adjoint of `convolveDown`.
 * @param {Float64Array} signal [below, height, width]
 * @param {Filters} filters
 * @param {Float64Array} z [maps, height + K - 1, width + K - 1], written
 */
export function convolveUp(signal, { size, below, height, width, up }, z) {
  const border = size - 1;
  const [tall, wide] = [height + 2 * border, width + 2 * border];
  const padded = new Float64Array(below * tall * wide);
  for (let row = 0; row < below * height; row++) {
    const target = (Math.floor(row / height) * tall + (row % height) + border) * wide + border;
    padded.set(signal.subarray(row * width, (row + 1) * width), target);
  }
  correlate(padded, tall, wide, z.fill(0), up);
}

/**
 * Planes that reconstruct the layer below (convolve, so the taps are flipped) or propagate up (correlate).
 * @param {Float32Array} filters [below, maps, K, K]
 * @param {Uint8Array} connected [below, maps]
 * @param {number} below
 * @param {number} maps
 * @param {number} size
 * @param {"down" | "up"} direction
 * @returns {Planes}
 */
function planesOf(filters, connected, below, maps, size, direction) {
  const area = size * size;
  /** @type {number[]} */ const from = [];
  /** @type {number[]} */ const to = [];
  /** @type {number[]} */ const taps = [];
  const [outer, inner] = direction === "down" ? [below, maps] : [maps, below]; // the map written stays in the cache
  for (let written = 0; written < outer; written++) {
    for (let read = 0; read < inner; read++) {
      const [c, b] = direction === "down" ? [written, read] : [read, written];
      if (!connected[c * maps + b]) continue;
      const plane = filters.subarray((c * maps + b) * area, (c * maps + b + 1) * area);
      from.push(read);
      to.push(written);
      taps.push(...(direction === "down" ? plane.slice().reverse() : plane));
    }
  }
  return { size, from: Int32Array.from(from), to: Int32Array.from(to), taps: Float64Array.from(taps) };
}

/**
 * output[to, y, x] = Σ taps[ky, kx] input[from, y + ky, x + kx] over all pairs: a valid correlation.
 * Rows without a signal are skipped; of the others only the stretch from the first to the last non-zero is read.
 * @param {Float64Array} input [maps, inHeight, inWidth]
 * @param {number} inHeight
 * @param {number} inWidth
 * @param {Float64Array} output [maps, inHeight - K + 1, inWidth - K + 1], zeros, written
 * @param {Planes} planes
 */
function correlate(input, inHeight, inWidth, output, planes) {
  const { size, from, to, taps } = planes;
  const outHeight = inHeight - size + 1;
  const outWidth = inWidth - size + 1;
  const { first, last } = stretches(input, inWidth);
  for (let n = 0; n < from.length; n++) {
    for (let row = 0; row < inHeight; row++) {
      const source = from[n] * inHeight + row;
      if (last[source] < 0) continue;
      const x = Math.max(0, first[source] - size + 1);
      const count = Math.min(outWidth - 1, last[source]) - x + 1;
      const start = source * inWidth + x;
      const target = (to[n] * outHeight + row) * outWidth + x; // where tap row 0 writes; tap row ky writes ky rows above
      if (size === 5 && row >= 4 && row < outHeight) {
        addFiveRows(input, start, output, target, outWidth, count, taps, n * 25);
        continue;
      }
      for (let ky = Math.max(0, row - outHeight + 1); ky < size && ky <= row; ky++) {
        const [o, t] = [target - ky * outWidth, (n * size + ky) * size];
        if (size === 5) addRowOfFive(input, start, output, o, count, taps, t, size);
        else addRow(input, start, output, o, count, taps, t, size);
      }
    }
  }
}

/**
 * First and last non-zero of every row; an empty row has last = -1.
 * @param {Float64Array} input
 * @param {number} width
 */
function stretches(input, width) {
  const rows = input.length / width;
  const first = new Int32Array(rows);
  const last = new Int32Array(rows).fill(-1);
  for (let row = 0; row < rows; row++) {
    let x = row * width;
    const end = x + width;
    while (x < end && input[x] === 0) x++;
    if (x === end) continue;
    first[row] = x - row * width;
    x = end - 1;
    while (input[x] === 0) x--;
    last[row] = x - row * width;
  }
  return { first, last };
}

/**
 * One tap row of any length: output[o + i] += Σ_k taps[t + k] input[s + i + k] for i < count.
 * @param {Float64Array} input
 * @param {number} s
 * @param {Float64Array} output
 * @param {number} o
 * @param {number} count
 * @param {Float64Array} taps
 * @param {number} t
 * @param {number} size
 */
function addRow(input, s, output, o, count, taps, t, size) {
  for (let i = 0; i < count; i++) {
    let sum = 0;
    for (let k = 0; k < size; k++) sum += taps[t + k] * input[s + i + k];
    output[o + i] += sum;
  }
}

/**
 * One tap row of five: the window of inputs stays in registers.
 * @type {typeof addRow}
 */
// prettier-ignore
function addRowOfFive(input, s, output, o, count, taps, t) {
  const a = taps[t], b = taps[t + 1], c = taps[t + 2], d = taps[t + 3], e = taps[t + 4];
  let v0 = input[s], v1 = input[s + 1], v2 = input[s + 2], v3 = input[s + 3];
  for (let i = 0; i < count; i++) {
    const v4 = input[s + i + 4];
    output[o + i] += a * v0 + b * v1 + c * v2 + d * v3 + e * v4;
    v0 = v1; v1 = v2; v2 = v3; v3 = v4;
  }
}

/**
 * All five tap rows of a 5×5 filter, the paper's size: every input is read once and stays in a register.
 * @param {Float64Array} input
 * @param {number} s
 * @param {Float64Array} output
 * @param {number} o where tap row 0 writes; each further one writes one row above
 * @param {number} width of the output
 * @param {number} count
 * @param {Float64Array} taps
 * @param {number} t
 */
// prettier-ignore
function addFiveRows(input, s, output, o, width, count, taps, t) {
  const a0 = taps[t], a1 = taps[t + 1], a2 = taps[t + 2], a3 = taps[t + 3], a4 = taps[t + 4];
  const b0 = taps[t + 5], b1 = taps[t + 6], b2 = taps[t + 7], b3 = taps[t + 8], b4 = taps[t + 9];
  const c0 = taps[t + 10], c1 = taps[t + 11], c2 = taps[t + 12], c3 = taps[t + 13], c4 = taps[t + 14];
  const d0 = taps[t + 15], d1 = taps[t + 16], d2 = taps[t + 17], d3 = taps[t + 18], d4 = taps[t + 19];
  const e0 = taps[t + 20], e1 = taps[t + 21], e2 = taps[t + 22], e3 = taps[t + 23], e4 = taps[t + 24];
  const [oa, ob, oc, od, oe] = [o, o - width, o - 2 * width, o - 3 * width, o - 4 * width];
  let v0 = input[s], v1 = input[s + 1], v2 = input[s + 2], v3 = input[s + 3];
  for (let i = 0; i < count; i++) {
    const v4 = input[s + i + 4];
    output[oa + i] += a0 * v0 + a1 * v1 + a2 * v2 + a3 * v3 + a4 * v4;
    output[ob + i] += b0 * v0 + b1 * v1 + b2 * v2 + b3 * v3 + b4 * v4;
    output[oc + i] += c0 * v0 + c1 * v1 + c2 * v2 + c3 * v3 + c4 * v4;
    output[od + i] += d0 * v0 + d1 * v1 + d2 * v2 + d3 * v3 + d4 * v4;
    output[oe + i] += e0 * v0 + e1 * v1 + e2 * v2 + e3 * v3 + e4 * v4;
    v0 = v1; v1 = v2; v2 = v3; v3 = v4;
  }
}
