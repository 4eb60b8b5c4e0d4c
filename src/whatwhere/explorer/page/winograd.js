// 5×5 convolutions with few multiplications (Winograd's minimal filtering), for maps with many connections.
//
// Four values of a signal and five taps are polynomials of degree 3 and 4. Their full convolution is the product, of
// degree 7, which its values at the 8 points 0, ±1, ±2, ±½, ∞ determine: evaluate both factors, multiply, interpolate.
// In two dimensions a tile of 4×4 values then takes 64 multiplications for each filter, not 400; evaluation and
// interpolation are done once for each map, whatever it is connected to. That is the way up. The way down, a
// correlation, is its transpose: every step transposed, in the opposite order.

import { evaluate, evaluateTransposed, interpolate, interpolateTransposed } from "./polynomial.js";

const POINTS = [0, 1, -1, 2, -2, 0.5, -0.5]; // and ∞
const TILE = 4;
const SIDE = 8; // of a tile's product: 4 + 5 - 1
const AREA = SIDE * SIDE;
const BLOCK = 16; // tiles that `multiply` takes at a time

/**
 * Filters between two layers by their values at the points, and room for what is computed on the way.
 * @typedef {object} FilterValues
 * @property {number} below maps below
 * @property {number} maps maps above
 * @property {Side} up pairs sorted by the map above
 * @property {Side} down pairs sorted by the map below
 * @property {Tiles} tiles
 * @property {Float64Array} lower [64 points, below, slots]
 * @property {Float64Array} upper [64 points, maps, slots]
 */

/**
 * Pairs of connected maps, sorted by the map that is written.
 * @typedef {object} Side
 * @property {Int32Array} first where the pairs of each map written begin, and the end
 * @property {Int32Array} from map read by each pair
 * @property {Float64Array} values [64 points, pairs]
 */

/**
 * @param {import("./correlate.js").Planes} up full convolutions as planes: pairs sorted by the map above
 * @param {number} below
 * @param {number} maps
 * @param {number} height of the signal below
 * @param {number} width
 * @returns {FilterValues}
 */
export function filterValues(up, below, maps, height, width) {
  const values = Array.from(up.from, (_, n) => evaluateFilter(up.taps.slice(n * 25, n * 25 + 25).reverse()));
  const byUpper = Array.from(up.from, (lower, n) => ({ from: lower, to: up.to[n], values: values[n] }));
  const byLower = byUpper.map(({ from, to, values }) => ({ from: to, to: from, values })).sort((a, b) => a.to - b.to);
  const tiles = tilesOf(height, width);
  const [lower, upper] = [below, maps].map((count) => new Float64Array(AREA * count * tiles.slots));
  return { below, maps, up: sideOf(byUpper, maps), down: sideOf(byLower, below), tiles, lower, upper };
}

/**
 * @param {{ from: number, to: number, values: number[] }[]} pairs sorted by `to`
 * @param {number} written
 * @returns {Side}
 */
function sideOf(pairs, written) {
  const first = new Int32Array(written + 1);
  for (const { to } of pairs) first[to + 1]++;
  for (let m = 0; m < written; m++) first[m + 1] += first[m];
  const values = new Float64Array(AREA * pairs.length);
  pairs.forEach((pair, n) => pair.values.forEach((value, i) => (values[i * pairs.length + n] = value)));
  return { first, from: Int32Array.from(pairs, ({ from }) => from), values };
}

/**
 * A filter's values at the points, divided by the denominators of Lagrange's interpolation.
 * @param {ArrayLike<number>} taps [5, 5]
 */
function evaluateFilter(taps) {
  const powers = POINTS.map((a) => {
    const denominator = POINTS.reduce((product, b) => (a === b ? product : product * (a - b)), 1);
    return [0, 1, 2, 3, 4].map((k) => a ** k / denominator);
  });
  powers.push([0, 0, 0, 0, 1]); // at ∞ only the highest power counts
  return powers.flatMap((byY) =>
    powers.map((byX) => {
      let sum = 0;
      for (let k = 0; k < 25; k++) sum += byY[Math.floor(k / 5)] * taps[k] * byX[k % 5];
      return sum;
    }),
  );
}

/**
 * The full convolution of the signal below: what it propagates up.
 * @param {Float64Array} signal [below, height, width]
 * @param {Float64Array} z [maps, height + 4, width + 4], written
 * @param {FilterValues} filters
 */
export function tiledUp(signal, z, { below, maps, up, tiles, lower, upper }) {
  const { height, width, rows, columns, slots, line, tall, wide, plane, lines } = tiles;
  plane.fill(0);
  for (let c = 0; c < below; c++) {
    copy(signal, c * height * width, width, plane, 0, wide, height, width);
    for (let y = 0; y < rows * TILE; y++) {
      for (let x = 0; x < columns; x++) evaluate(plane, y * wide + x * TILE, 1, lines, y * line + x * SIDE, 1);
    }
    for (let i = 0; i < SIDE; i++) {
      for (let t = 0; t < rows * columns; t++) {
        const [from, to] = [tileStart(t, columns, line), c * slots + t];
        evaluate(lines, from + i, line, lower, to + i * below * slots, SIDE * below * slots);
      }
    }
  }
  multiply(lower, below, upper, maps, slots, up);
  for (let b = 0; b < maps; b++) {
    lines.fill(0);
    plane.fill(0);
    for (let i = 0; i < SIDE; i++) {
      for (let t = 0; t < rows * columns; t++) {
        const [from, to] = [b * slots + t, tileStart(t, columns, line)];
        interpolate(upper, from + i * maps * slots, SIDE * maps * slots, lines, to + i, line);
      }
    }
    for (let y = 0; y < tall; y++) {
      for (let x = 0; x < columns; x++) interpolate(lines, y * line + x * SIDE, 1, plane, y * wide + x * TILE, 1);
    }
    copy(plane, 0, wide, z, b * (height + 4) * (width + 4), width + 4, height + 4, width + 4);
  }
}

/**
 * The transpose of `tiledUp`: a valid correlation, which reconstructs the signal below.
 * @param {Float64Array} z [maps, height + 4, width + 4]
 * @param {Float64Array} signal [below, height, width], written
 * @param {FilterValues} filters
 */
export function tiledDown(z, signal, { below, maps, down, tiles, lower, upper }) {
  const { height, width, rows, columns, slots, line, tall, wide, plane, lines } = tiles;
  plane.fill(0);
  for (let b = 0; b < maps; b++) {
    copy(z, b * (height + 4) * (width + 4), width + 4, plane, 0, wide, height + 4, width + 4);
    for (let y = 0; y < tall; y++) {
      for (let x = 0; x < columns; x++) {
        interpolateTransposed(plane, y * wide + x * TILE, 1, lines, y * line + x * SIDE, 1);
      }
    }
    for (let i = 0; i < SIDE; i++) {
      for (let t = 0; t < rows * columns; t++) {
        const [from, to] = [tileStart(t, columns, line), b * slots + t];
        interpolateTransposed(lines, from + i, line, upper, to + i * maps * slots, SIDE * maps * slots);
      }
    }
  }
  multiply(upper, maps, lower, below, slots, down);
  for (let c = 0; c < below; c++) {
    for (let i = 0; i < SIDE; i++) {
      for (let t = 0; t < rows * columns; t++) {
        const [from, to] = [c * slots + t, tileStart(t, columns, line)];
        evaluateTransposed(lower, from + i * below * slots, SIDE * below * slots, lines, to + i, line);
      }
    }
    for (let y = 0; y < rows * TILE; y++) {
      for (let x = 0; x < columns; x++) {
        evaluateTransposed(lines, y * line + x * SIDE, 1, plane, y * wide + x * TILE, 1);
      }
    }
    copy(plane, 0, wide, signal, c * height * width, width, height, width);
  }
}

/** @typedef {ReturnType<typeof tilesOf>} Tiles */

/**
 * Tiles that cover a signal. A plane holds one map, lines hold its rows after evaluation along them.
 * @param {number} height
 * @param {number} width
 */
function tilesOf(height, width) {
  const [rows, columns] = [Math.ceil(height / TILE), Math.ceil(width / TILE)];
  const slots = BLOCK * Math.ceil((rows * columns) / BLOCK);
  const [line, tall, wide] = [columns * SIDE, (rows + 1) * TILE, (columns + 1) * TILE];
  const [plane, lines] = [new Float64Array(tall * wide), new Float64Array(tall * line)];
  return { height, width, rows, columns, slots, line, tall, wide, plane, lines };
}

/**
 * Where the lines of tile t begin.
 * @param {number} t
 * @param {number} columns
 * @param {number} line
 */
const tileStart = (t, columns, line) => Math.floor(t / columns) * TILE * line + (t % columns) * SIDE;

/**
 * Copy a rectangle.
 * @param {Float64Array} source
 * @param {number} s
 * @param {number} sourceWidth
 * @param {Float64Array} target
 * @param {number} t
 * @param {number} targetWidth
 * @param {number} height
 * @param {number} width
 */
function copy(source, s, sourceWidth, target, t, targetWidth, height, width) {
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) target[t + y * targetWidth + x] = source[s + y * sourceWidth + x];
  }
}

/**
 * products[i, to] = Σ values[i, pair] factors[i, from] at every point i. Sums of 16 tiles stay in registers.
 * @param {Float64Array} factors [64 points, read, slots]
 * @param {number} read
 * @param {Float64Array} products [64 points, written, slots]
 * @param {number} written
 * @param {number} slots
 * @param {Side} pairs
 */
// prettier-ignore
function multiply(factors, read, products, written, slots, { first, from, values }) {
  // An index & 0x7ffffff is the index; the compiler then need not check whether sums of it overflow.
  for (let i = 0; i < AREA; i++) {
    const [input, output, value] = [i * read * slots, i * written * slots, i * from.length];
    for (let m = 0; m < written; m++) {
      const end = first[m + 1];
      for (let t = 0; t < slots; t += BLOCK) {
        let s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;
        let s8 = 0, s9 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0, s14 = 0, s15 = 0;
        for (let n = first[m]; n < end; n++) {
          const v = values[value + n], f = (input + from[n] * slots + t) & 0x7ffffff;
          s0 += v * factors[f]; s1 += v * factors[f + 1]; s2 += v * factors[f + 2]; s3 += v * factors[f + 3];
          s4 += v * factors[f + 4]; s5 += v * factors[f + 5]; s6 += v * factors[f + 6]; s7 += v * factors[f + 7];
          s8 += v * factors[f + 8]; s9 += v * factors[f + 9]; s10 += v * factors[f + 10]; s11 += v * factors[f + 11];
          s12 += v * factors[f + 12]; s13 += v * factors[f + 13]; s14 += v * factors[f + 14]; s15 += v * factors[f + 15];
        }
        const o = (output + m * slots + t) & 0x7ffffff;
        products[o] = s0; products[o + 1] = s1; products[o + 2] = s2; products[o + 3] = s3;
        products[o + 4] = s4; products[o + 5] = s5; products[o + 6] = s6; products[o + 7] = s7;
        products[o + 8] = s8; products[o + 9] = s9; products[o + 10] = s10; products[o + 11] = s11;
        products[o + 12] = s12; products[o + 13] = s13; products[o + 14] = s14; products[o + 15] = s15;
      }
    }
  }
}
