// Gaussian pooling: weights of a region, unpooling and its adjoint, and the gradient step of θ = (μ, γ).
//
// A region has s elements along each axis, at coordinates x centred in the region. Its Gaussian is separable:
// q = softmax(-γ (x - μ)² / 2), w = √q along each axis, and the weight of an element is w_y · w_x.
// Regions of 2×2, the paper's size, have short cuts: along an axis of two elements q is one sigmoid of γ μ.
import { exponent, pairMoment, pairWeights, stepTheta, thetaGradient } from "./formulas.js";

/**
 * The regions of one layer at one image size.
 * @typedef {object} Regions
 * @property {number} maps
 * @property {number} height of the unpooled maps z
 * @property {number} width
 * @property {number} size s, side of a region
 * @property {number} stride from one region to the next
 * @property {number} rows of regions
 * @property {number} columns
 * @property {Int32Array} corner place in z of every region's first element
 * @property {Uint8Array} tall rows of every region that lie inside the map
 * @property {Uint8Array} wide columns likewise
 */

/**
 * Where: the Gaussian of every region, [maps, rows, columns] each.
 * @typedef {object} Theta
 * @property {Float64Array} muY
 * @property {Float64Array} muX
 * @property {Float64Array} gammaY
 * @property {Float64Array} gammaX
 */

/**
 * Weights of every region along both axes, [maps, rows, columns, s] each.
 * @typedef {{ y: Float64Array, x: Float64Array }} Weights
 */

/**
 * @param {number} maps
 * @param {number} height
 * @param {number} width
 * @param {number} size
 * @param {number} stride
 * @returns {Regions}
 */
export function regionsOf(maps, height, width, size, stride) {
  const count = (/** @type {number} */ n) => Math.max(0, Math.ceil((n - size) / stride)) + 1;
  const [rows, columns] = [count(height), count(width)];
  const n = maps * rows * columns;
  const [corner, tall, wide] = [new Int32Array(n), new Uint8Array(n), new Uint8Array(n)];
  for (let j = 0; j < n; j++) {
    const top = (Math.floor(j / columns) % rows) * stride;
    const left = (j % columns) * stride;
    corner[j] = (Math.floor(j / (rows * columns)) * height + top) * width + left;
    tall[j] = Math.min(size, height - top);
    wide[j] = Math.min(size, width - left);
  }
  return { maps, height, width, size, stride, rows, columns, corner, tall, wide };
}

/** @param {Regions} r */
export const regionCount = (r) => r.corner.length;

/**
 * @param {Regions} r
 * @returns {Theta}
 */
export function emptyTheta(r) {
  const n = regionCount(r);
  return {
    muY: new Float64Array(n),
    muX: new Float64Array(n),
    gammaY: new Float64Array(n),
    gammaX: new Float64Array(n),
  };
}

/**
 * w = √softmax(-γ (x - μ)² / 2) of one region along one axis, over the elements that exist.
 * @param {Float64Array} w written at [at, at + s)
 * @param {number} at
 * @param {number} mu
 * @param {number} gamma
 * @param {number} size
 * @param {number} exist how many of the s elements lie inside the map
 */
function axisWeights(w, at, mu, gamma, size, exist) {
  if (size === 2 && exist === 2) {
    const pair = pairWeights(mu, gamma); // by index: destructuring an array takes longer
    w[at] = pair[0];
    w[at + 1] = pair[1];
    return;
  }
  const centre = (size - 1) / 2;
  let largest = -Infinity;
  for (let i = 0; i < exist; i++) {
    w[at + i] = exponent(i - centre, mu, gamma);
    if (w[at + i] > largest) largest = w[at + i];
  }
  let sum = 0;
  for (let i = 0; i < exist; i++) sum += w[at + i] = Math.exp(w[at + i] - largest);
  for (let i = 0; i < exist; i++) w[at + i] = Math.sqrt(w[at + i] / sum);
  for (let i = exist; i < size; i++) w[at + i] = 0;
}

/**
 * Recompute the weights of region j.
 * @param {Weights} weights
 * @param {Theta} theta
 * @param {Regions} r
 * @param {number} j
 */
export function updateWeights(weights, theta, r, j) {
  axisWeights(weights.y, j * r.size, theta.muY[j], theta.gammaY[j], r.size, r.tall[j]);
  axisWeights(weights.x, j * r.size, theta.muX[j], theta.gammaX[j], r.size, r.wide[j]);
}

/**
 * @param {Theta} theta
 * @param {Regions} r
 * @returns {Weights}
 */
export function weightsOf(theta, r) {
  const n = regionCount(r);
  const weights = { y: new Float64Array(n * r.size), x: new Float64Array(n * r.size) };
  for (let j = 0; j < n; j++) updateWeights(weights, theta, r, j);
  return weights;
}

/**
 * z(i) = w(i) p(j), added where regions overlap.
 * @param {Float64Array} p
 * @param {Weights} w
 * @param {Regions} r
 * @param {Float64Array} z zeros, written
 */
export function unpool(p, w, { size, width, corner, tall, wide }, z) {
  const [wy, wx] = [w.y, w.x];
  for (let j = 0; j < corner.length; j++) {
    if (p[j] === 0) continue;
    if (size === 2 && tall[j] === 2 && wide[j] === 2) {
      const left = wx[2 * j];
      const right = wx[2 * j + 1];
      const upper = p[j] * wy[2 * j];
      const lower = p[j] * wy[2 * j + 1];
      const top = corner[j];
      const bottom = top + width;
      z[top] += upper * left;
      z[top + 1] += upper * right;
      z[bottom] += lower * left;
      z[bottom + 1] += lower * right;
      continue;
    }
    for (let i = 0; i < tall[j]; i++) {
      const along = p[j] * wy[j * size + i];
      const start = corner[j] + i * width;
      for (let k = 0; k < wide[j]; k++) z[start + k] += along * wx[j * size + k];
    }
  }
}

/**
 * p(j) = Σ_i w(i) z(i), the adjoint of `unpool`.
 * @param {Float64Array} z
 * @param {Weights} w
 * @param {Regions} r
 * @param {Float64Array} p written
 */
export function pool(z, w, { size, width, corner, tall, wide }, p) {
  const [wy, wx] = [w.y, w.x];
  for (let j = 0; j < corner.length; j++) {
    if (size === 2 && tall[j] === 2 && wide[j] === 2) {
      const top = corner[j];
      const left = wx[2 * j];
      const right = wx[2 * j + 1];
      const upper = z[top] * left + z[top + 1] * right;
      const lower = z[top + width] * left + z[top + width + 1] * right;
      p[j] = upper * wy[2 * j] + lower * wy[2 * j + 1];
      continue;
    }
    let sum = 0;
    for (let i = 0; i < tall[j]; i++) {
      const start = corner[j] + i * width;
      let along = 0;
      for (let k = 0; k < wide[j]; k++) along += z[start + k] * wx[j * size + k];
      sum += along * wy[j * size + i];
    }
    p[j] = sum;
  }
}

/**
 * θ ← bound(θ - step ∇θ) wherever p̂ ≠ 0, and the weights there. The slope along an axis is w_i Σ_others w error.
 * @param {Theta} theta changed
 * @param {Weights} w changed
 * @param {Regions} r
 * @param {Float64Array} error at z
 * @param {Float64Array} p p̂ of this layer
 * @param {number} step λ β_U
 * @param {number} gammaMin
 * @param {number} gammaMax
 */
export function updatePooling(theta, w, r, error, p, step, gammaMin, gammaMax) {
  const { size, width, corner, tall, wide } = r;
  const [wy, wx] = [w.y, w.x];
  const bounds = [(size - 1) / 2, gammaMin, gammaMax];
  const [slopeY, slopeX] = [new Float64Array(size), new Float64Array(size)];
  for (let j = 0; j < corner.length; j++) {
    if (p[j] === 0) continue;
    if (size === 2 && tall[j] === 2 && wide[j] === 2) {
      const at = corner[j];
      const a = error[at], b = error[at + 1], c = error[at + width], d = error[at + width + 1];
      const top = wy[2 * j], bottom = wy[2 * j + 1], left = wx[2 * j], right = wx[2 * j + 1];
      const firstY = pairMoment(top, bottom, a * left + b * right, c * left + d * right);
      const firstX = pairMoment(left, right, a * top + c * bottom, b * top + d * bottom);
      moveAxis(theta.muY, theta.gammaY, j, firstY, 0, step * p[j], bounds);
      moveAxis(theta.muX, theta.gammaX, j, firstX, 0, step * p[j], bounds);
      updateWeights(w, theta, r, j);
      continue;
    }
    slopeY.fill(0);
    slopeX.fill(0);
    for (let i = 0; i < tall[j]; i++) {
      const start = corner[j] + i * width;
      for (let k = 0; k < wide[j]; k++) {
        const slope = error[start + k] * wy[j * size + i] * wx[j * size + k];
        slopeY[i] += slope;
        slopeX[k] += slope;
      }
    }
    const [firstY, secondY] = momentsAlong(wy, slopeY, j * size);
    const [firstX, secondX] = momentsAlong(wx, slopeX, j * size);
    moveAxis(theta.muY, theta.gammaY, j, firstY, secondY, step * p[j], bounds);
    moveAxis(theta.muX, theta.gammaX, j, firstX, secondX, step * p[j], bounds);
    updateWeights(w, theta, r, j);
  }
}

/**
 * The step of μ and γ of region j along one axis.
 * @param {Float64Array} mu changed
 * @param {Float64Array} gamma changed
 * @param {number} j
 * @param {number} first moment that `thetaGradient` asks for
 * @param {number} second
 * @param {number} step times p̂
 * @param {number[]} bounds
 */
function moveAxis(mu, gamma, j, first, second, step, bounds) {
  const gradient = thetaGradient(mu[j], gamma[j], first, second);
  const moved = stepTheta([mu[j], gamma[j]], gradient, step, bounds);
  mu[j] = moved[0];
  gamma[j] = moved[1];
}

/**
 * Σ slope_i (x_i - Σ q x) and Σ slope_i (x_i² - Σ q x²) of a region's elements along one axis.
 * @param {Float64Array} w
 * @param {Float64Array} slope
 * @param {number} at of the region's weights
 * @returns {[number, number]}
 */
function momentsAlong(w, slope, at) {
  let [total, first, second, mean, square] = [0, 0, 0, 0, 0];
  for (let i = 0; i < slope.length; i++) {
    const x = i - (slope.length - 1) / 2;
    const q = w[at + i] ** 2;
    total += slope[i];
    first += slope[i] * x;
    second += slope[i] * x * x;
    mean += q * x;
    square += q * x * x;
  }
  return [first - mean * total, second - square * total];
}
