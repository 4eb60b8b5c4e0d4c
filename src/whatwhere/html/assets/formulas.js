// The formulas of the model on single numbers: those of `formulas/`, under the same names in camel case.
// `tests/pages/test_formulas_js.py` compares every one of them with it.

/** @typedef {[number, number]} Pair */

/**
 * log q of the element at x but for its norm: q = softmax_i(-γ (x_i - μ)² / 2).
 * @param {number} x
 * @param {number} mu
 * @param {number} gamma
 */
export const exponent = (x, mu, gamma) => (-gamma / 2) * (x - mu) ** 2;

/**
 * The weights of two elements, x = ±½: the larger is 1/√(1 + t²), the smaller t/√(1 + t²), with t = e^-|γμ/2|.
 * @param {number} mu
 * @param {number} gamma
 * @returns {Pair}
 */
export function pairWeights(mu, gamma) {
  const t = Math.exp(-Math.abs(mu * gamma) / 2);
  const larger = 1 / Math.sqrt(1 + t * t);
  return mu * gamma > 0 ? [t * larger, larger] : [larger, t * larger];
}

/**
 * Σ w_i r_i (x_i - x̄) of two elements with errors r; the second moment that `thetaGradient` asks for is 0.
 * @param {number} w0
 * @param {number} w1
 * @param {number} r0
 * @param {number} r1
 */
export const pairMoment = (w0, w1, r0, r1) => w0 * w1 * (w0 * r1 - w1 * r0);

/**
 * ∂/∂μ and ∂/∂γ of Σ w_i r_i along one axis, from Σ w_i r_i (x_i - Σ q x) and Σ w_i r_i (x_i² - Σ q x²).
 * @param {number} mu
 * @param {number} gamma
 * @param {number} first
 * @param {number} second
 * @returns {Pair}
 */
export const thetaGradient = (mu, gamma, first, second) => [(gamma * first) / 2, (mu * first) / 2 - second / 4];

/**
 * A mean inside its region, a precision between its bounds.
 * @param {number} mu
 * @param {number} gamma
 * @param {number[]} bounds [reach, γ_min, γ_max]
 * @returns {Pair}
 */
export const bound = (mu, gamma, bounds) => [clamp(mu, -bounds[0], bounds[0]), clamp(gamma, bounds[1], bounds[2])];

/**
 * θ ← bound(θ - step ∇θ) along one axis.
 * @param {Pair} theta [μ, γ]
 * @param {Pair} gradient
 * @param {number} step λ β_U
 * @param {number[]} bounds
 */
export const stepTheta = (theta, gradient, step, bounds) =>
  bound(theta[0] - step * gradient[0], theta[1] - step * gradient[1], bounds);

/**
 * A divisor that may be 0, which is then 1.
 * @param {number} size
 */
export const orOne = (size) => (size > 0 ? size : 1);

/**
 * The weight |s|^power of a signal in its moments, relative to the largest of its region.
 * @param {number} relative
 * @param {number} power
 */
export const strength = (relative, power) => Math.abs(relative) ** power;

/**
 * γ = 1 / variance, bounded; without a signal the least.
 * @param {number} variance
 * @param {number} total Σ strength
 * @param {number} low
 * @param {number} high
 */
export const precision = (variance, total, low, high) =>
  clamp(total > 0 ? 1 / Math.max(variance, 1 / Math.max(high, 1)) : 0, low, high);

/**
 * |p|^α.
 * @param {number} p
 * @param {number} alpha
 */
export const powered = (p, alpha) => Math.abs(p) ** alpha;

/**
 * A step of size β on the penalty, p - β α |p|^(α-1) sign p, that stops at zero.
 * @param {number} p
 * @param {number} beta
 * @param {number} alpha
 */
export function shrinkPowered(p, beta, alpha) {
  const size = Math.abs(p);
  const smaller = size - (alpha === 1 ? beta : beta * alpha * size ** (alpha - 1));
  if (!(smaller > 0)) return 0;
  return p > 0 ? smaller : -smaller;
}

/**
 * β = ‖g‖² / (λ ‖R g‖²); 0 where there is no gradient.
 * @param {number} above
 * @param {number} below
 */
export const lineSearch = (above, below) => (below > 0 ? above / below : 0);

/**
 * @param {number} value
 * @param {number} low
 * @param {number} high
 */
export const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
