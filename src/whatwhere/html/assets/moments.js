// The start of the pooling variables: fitted to a signal that was propagated up.
import { bound, orOne, precision, strength } from "./formulas.js";
import { emptyTheta } from "./pooling.js";

/** @typedef {import("./pooling.js").Regions} Regions */
/** @typedef {import("./pooling.js").Theta} Theta */

const SWITCH = 1e4; // a precision at which all weight is on one element: max pooling

/**
 * The pooling variables that a bottom-up signal at z suggests: moments, switches, or flat.
 * @param {"gaussian" | "max" | "sum"} kind
 * @param {Float64Array} z
 * @param {Regions} r
 * @param {{ gammaMin: number, gammaMax: number, momentPower: number }} settings
 * @returns {Theta}
 */
export function fitTheta(kind, z, r, settings) {
  const theta = emptyTheta(r);
  if (kind === "sum") return theta;
  const fit = kind === "max" ? fitSwitch : fitMoments;
  for (let j = 0; j < r.corner.length; j++) fit(theta, j, elements(z, r, j), r.size, settings);
  return theta;
}

/**
 * |s| of a region's elements, [s, s]; 0 beyond the border of the map.
 * @param {Float64Array} z
 * @param {Regions} r
 * @param {number} j
 */
function elements(z, { size, width, corner, tall, wide }, j) {
  const values = new Array(size * size).fill(0);
  for (let i = 0; i < tall[j]; i++) {
    for (let k = 0; k < wide[j]; k++) values[i * size + k] = Math.abs(z[corner[j] + i * width + k]);
  }
  return values;
}

/**
 * Max pooling: all weight on the largest element, the first of them where several are.
 * @param {Theta} theta
 * @param {number} j
 * @param {number[]} s
 * @param {number} size
 */
function fitSwitch(theta, j, s, size) {
  const where = s.indexOf(Math.max(...s));
  theta.muY[j] = Math.floor(where / size) - (size - 1) / 2;
  theta.muX[j] = (where % size) - (size - 1) / 2;
  theta.gammaY[j] = theta.gammaX[j] = SWITCH;
}

/**
 * Moment matching: μ is the mean of |s|^power, γ one over its variance, bounded. A region without signal is flat.
 * @param {Theta} theta
 * @param {number} j
 * @param {number[]} s
 * @param {number} size
 * @param {{ gammaMin: number, gammaMax: number, momentPower: number }} settings
 */
function fitMoments(theta, j, s, size, { gammaMin, gammaMax, momentPower }) {
  const largest = Math.max(...s);
  const share = s.map((value) => strength(value / orOne(largest), momentPower));
  const total = share.reduce((a, b) => a + b, 0);
  const centre = (size - 1) / 2;
  const fitted = (/** @type {(i: number) => number} */ coordinate) => {
    const mean = share.reduce((sum, q, i) => sum + q * coordinate(i), 0) / orOne(total);
    const variance = share.reduce((sum, q, i) => sum + q * (coordinate(i) - mean) ** 2, 0) / orOne(total);
    return bound(mean, precision(variance, total, gammaMin, gammaMax), [centre, gammaMin, gammaMax]);
  };
  [theta.muY[j], theta.gammaY[j]] = fitted((i) => Math.floor(i / size) - centre);
  [theta.muX[j], theta.gammaX[j]] = fitted((i) => (i % size) - centre);
}
