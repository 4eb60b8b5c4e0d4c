// Whether an image is of another kind than the examples, by the shades and the edges that it is made of.

const BINS = 8; // of shades, and of differences between neighbours
const FLAT = 0.08; // difference from the ground, of 1, up to which a pixel is ground
const FEWEST = 0.01; // share of pixels that are not ground from which on an image is judged
const ASKED = 200; // examples that are compared with each other
const FAR = 2; // times the distance that 95 % of the examples keep: of 400 digits 0 are called other, of 400 clothes 342

/** @typedef {{ channels: number, height: number, width: number }} Size */

/**
 * What an image is made of: the shades of all that is not ground, and the differences between neighbours there. Null for an
 * image that is nearly all ground.
 * @param {ArrayLike<number>} pixels from 0 to 1, [channels, height, width]
 * @param {Size} size
 */
export function substanceOf(pixels, { channels, height, width }) {
  const area = height * width;
  const grey = new Float64Array(area);
  for (let i = 0; i < channels * area; i++) grey[i % area] += pixels[i] / channels;
  const ground = [...grey].sort((a, b) => a - b)[area >> 1];
  const found = new Float64Array(2 * BINS);
  let count = 0;
  for (let i = 0; i < area; i++) {
    if (Math.abs(grey[i] - ground) <= FLAT) continue;
    const right = i % width < width - 1 ? Math.abs(grey[i + 1] - grey[i]) : 0;
    const below = i + width < area ? Math.abs(grey[i + width] - grey[i]) : 0;
    found[Math.min(BINS - 1, Math.floor(BINS * grey[i]))] += 1;
    found[BINS + Math.min(BINS - 1, Math.floor(BINS * Math.max(right, below)))] += 1;
    count += 1;
  }
  return count < FEWEST * area ? null : found.map((one) => one / count);
}

/** @param {Float64Array} a @param {Float64Array} b */
const apart = (a, b) => a.reduce((sum, one, i) => sum + Math.abs(one - b[i]), 0);

/** The kind of some examples. */
export class Kind {
  /** @param {ArrayLike<number>[]} images @param {Size} size */
  constructor(images, size) {
    this.size = size;
    const step = Math.max(1, Math.floor(images.length / ASKED));
    const some = images.filter((_, n) => n % step === 0);
    this.known = some.map((pixels) => substanceOf(pixels, size)).filter((one) => one !== null);
    const nearest = this.known.map((one, n) => Math.min(...this.known.map((other, m) => (m === n ? Infinity : apart(one, other)))));
    /** The distance to the nearest one that 95 % of the examples keep. */
    this.usual = nearest.sort((a, b) => a - b)[Math.floor(0.95 * nearest.length)] ?? 0;
  }

  /** Whether an image is of another kind; false with too few examples. @param {ArrayLike<number>} pixels */
  isOther(pixels) {
    const found = substanceOf(pixels, this.size);
    if (found === null || this.known.length < 10) return false;
    return Math.min(...this.known.map((one) => apart(one, found))) > FAR * this.usual;
  }
}
