// Polynomials and their values at the points 0, ±1, ±2, ±½, ∞, for `winograd.js`: there, back, and both transposed.

// An index & SMALL is the index; the compiler then need not check whether sums of it overflow.
const SMALL = 0x7ffffff;

/**
 * Values of the polynomial c0 + c1 x + c2 x² + c3 x³ at the points. ±x share their even and odd powers.
 * @param {Float64Array} source of the coefficients
 * @param {number} s where they begin
 * @param {number} n from one to the next
 * @param {Float64Array} target of the values
 * @param {number} t
 * @param {number} m
 */
// prettier-ignore
export function evaluate(source, s, n, target, t, m) {
  s &= SMALL; n &= SMALL; t &= SMALL; m &= SMALL;
  const c0 = source[s], c1 = source[s + n], c2 = source[s + 2 * n], c3 = source[s + 3 * n];
  const even1 = c0 + c2, even2 = c0 + 4 * c2, evenHalf = c0 + 0.25 * c2;
  const odd1 = c1 + c3, odd2 = 2 * c1 + 8 * c3, oddHalf = 0.5 * c1 + 0.125 * c3;
  target[t] = c0;
  target[t + m] = even1 + odd1;
  target[t + 2 * m] = even1 - odd1;
  target[t + 3 * m] = even2 + odd2;
  target[t + 4 * m] = even2 - odd2;
  target[t + 5 * m] = evenHalf + oddHalf;
  target[t + 6 * m] = evenHalf - oddHalf;
  target[t + 7 * m] = c3;
}

/** @type {typeof evaluate} */
// prettier-ignore
export function evaluateTransposed(source, s, n, target, t, m) {
  s &= SMALL; n &= SMALL; t &= SMALL; m &= SMALL;
  const zero = source[s], infinity = source[s + 7 * n];
  const even1 = source[s + n] + source[s + 2 * n], odd1 = source[s + n] - source[s + 2 * n];
  const even2 = source[s + 3 * n] + source[s + 4 * n], odd2 = source[s + 3 * n] - source[s + 4 * n];
  const evenHalf = source[s + 5 * n] + source[s + 6 * n], oddHalf = source[s + 5 * n] - source[s + 6 * n];
  target[t] = zero + even1 + even2 + evenHalf;
  target[t + m] = odd1 + 2 * odd2 + 0.5 * oddHalf;
  target[t + 2 * m] = even1 + 4 * even2 + 0.25 * evenHalf;
  target[t + 3 * m] = odd1 + 8 * odd2 + 0.125 * oddHalf + infinity;
}

/**
 * Coefficients of Σ value · Π (x - other points), added to those that are there, since tiles overlap. For ±1 the
 * product is (x² ± x) (x² - 4) (x² - ¼), for ±2 (x² ± 2x) (x² - 1) (x² - ¼), for ±½ (x² ± ½x) (x² - 1) (x² - 4).
 * @type {typeof evaluate}
 */
// prettier-ignore
export function interpolate(source, s, n, target, t, m) {
  s &= SMALL; n &= SMALL; t &= SMALL; m &= SMALL;
  const zero = source[s], infinity = source[s + 7 * n];
  const even1 = source[s + n] + source[s + 2 * n], odd1 = source[s + n] - source[s + 2 * n];
  const even2 = source[s + 3 * n] + source[s + 4 * n], odd2 = 2 * (source[s + 3 * n] - source[s + 4 * n]);
  const evenHalf = source[s + 5 * n] + source[s + 6 * n], oddHalf = 0.5 * (source[s + 5 * n] - source[s + 6 * n]);
  target[t] -= zero;
  target[t + m] += odd1 + 0.25 * odd2 + 4 * oddHalf - infinity;
  target[t + 2 * m] += even1 + 0.25 * even2 + 4 * evenHalf + 5.25 * zero;
  target[t + 3 * m] += 5.25 * infinity - 4.25 * odd1 - 1.25 * odd2 - 5 * oddHalf;
  target[t + 4 * m] -= 4.25 * even1 + 1.25 * even2 + 5 * evenHalf + 5.25 * zero;
  target[t + 5 * m] += odd1 + odd2 + oddHalf - 5.25 * infinity;
  target[t + 6 * m] += even1 + even2 + evenHalf + zero;
  target[t + 7 * m] += infinity;
}

/** @type {typeof evaluate} */
// prettier-ignore
export function interpolateTransposed(source, s, n, target, t, m) {
  s &= SMALL; n &= SMALL; t &= SMALL; m &= SMALL;
  const c0 = source[s], c1 = source[s + n], c2 = source[s + 2 * n], c3 = source[s + 3 * n];
  const c4 = source[s + 4 * n], c5 = source[s + 5 * n], c6 = source[s + 6 * n], c7 = source[s + 7 * n];
  const even1 = c2 - 4.25 * c4 + c6, odd1 = c1 - 4.25 * c3 + c5;
  const even2 = 0.25 * c2 - 1.25 * c4 + c6, odd2 = 0.5 * c1 - 2.5 * c3 + 2 * c5;
  const evenHalf = 4 * c2 - 5 * c4 + c6, oddHalf = 2 * c1 - 2.5 * c3 + 0.5 * c5;
  target[t] = c6 - c0 + 5.25 * (c2 - c4);
  target[t + m] = even1 + odd1;
  target[t + 2 * m] = even1 - odd1;
  target[t + 3 * m] = even2 + odd2;
  target[t + 4 * m] = even2 - odd2;
  target[t + 5 * m] = evenHalf + oddHalf;
  target[t + 6 * m] = evenHalf - oddHalf;
  target[t + 7 * m] = c7 - c1 + 5.25 * (c3 - c5);
}
