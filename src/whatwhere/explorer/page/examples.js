// The example images that the page carries, with their codes: sparse, and quantised to a byte a feature.
import { inflate } from "./unpack.js";

/**
 * @typedef {object} PackedExamples
 * @property {number} count
 * @property {string} images gzip of uint8 [count, channels, height, width]
 * @property {(number | null)[]} labels
 * @property {string[]} classes names of the labels
 * @property {string} codes gzip of: uint32 active [count], float32 largest [count], uint32 places, uint8 values
 * @property {number} steps of the inference that made the codes
 */

/** Active places of the top layer and their features. @typedef {{ places: Uint32Array, values: Float64Array }} Code */

export class Examples {
  /**
   * @param {PackedExamples} packed
   * @param {number} pixels of one image
   * @param {number} area regions of one map of the top layer
   */
  static async unpack(packed, pixels, area) {
    const [images, codes] = await Promise.all([inflate(packed.images), inflate(packed.codes)]);
    return new Examples(packed, images, codes, pixels, area);
  }

  /**
   * @param {PackedExamples} packed
   * @param {Uint8Array} images
   * @param {Uint8Array} bytes
   * @param {number} pixels
   * @param {number} area
   */
  constructor(packed, images, bytes, pixels, area) {
    this.count = packed.count;
    this.labels = packed.labels;
    this.classes = packed.classes;
    this.images = images;
    this.pixels = pixels;
    this.area = area;
    const active = new Uint32Array(bytes.buffer, 0, this.count);
    const largest = new Float32Array(bytes.buffer, 4 * this.count, this.count);
    const total = active.reduce((a, b) => a + b, 0);
    const places = new Uint32Array(bytes.buffer, 8 * this.count, total);
    const values = new Uint8Array(bytes.buffer, 8 * this.count + 4 * total, total);
    let start = 0;
    /** @type {Code[]} */
    this.codes = Array.from(active, (n, i) => {
      const from = start;
      start += n;
      const scaled = Float64Array.from(values.subarray(from, start), (value) => (value / 255) * largest[i]);
      return { places: places.subarray(from, start), values: scaled };
    });
    this.lengths = this.codes.map(({ values: v }) => Math.sqrt(v.reduce((sum, value) => sum + value * value, 0)));
  }

  /** @param {number} i */
  image(i) {
    return Float64Array.from(this.images.subarray(i * this.pixels, (i + 1) * this.pixels), (value) => value / 255);
  }

  /** @param {number} i */
  label(i) {
    const label = this.labels[i];
    return label === null || label === undefined ? "" : (this.classes[label] ?? String(label));
  }

  /**
   * The examples whose codes are nearest to p by cosine distance: 0 is the same direction, 1 nothing in common.
   * @param {Float64Array} p
   * @param {number} count
   */
  nearest(p, count) {
    const length = Math.sqrt(p.reduce((sum, value) => sum + value * value, 0));
    const found = this.codes.map(({ places, values }, i) => {
      let product = 0;
      for (let n = 0; n < places.length; n++) product += values[n] * p[places[n]];
      const both = length * this.lengths[i];
      return { example: i, distance: both > 0 ? Math.max(0, 1 - product / both) : 1 };
    });
    return found.sort((a, b) => a.distance - b.distance).slice(0, count);
  }

  /** All activations of a feature of the top layer. @param {number} map */
  activations(map) {
    /** @type {{ example: number, place: number, value: number }[]} */
    const found = [];
    this.codes.forEach(({ places, values }, example) => {
      places.forEach((place, n) => {
        if (Math.floor(place / this.area) === map) found.push({ example, place, value: values[n] });
      });
    });
    return found;
  }

  /**
   * Features that occur in the same images: the share of this feature's images that have them, and how many times
   * more often that is than in all images.
   * @param {number} map
   * @param {number} maps
   */
  together(map, maps) {
    const [all, shared] = [new Uint32Array(maps), new Uint32Array(maps)];
    let with_ = 0;
    for (const { places } of this.codes) {
      const here = new Set(Array.from(places, (place) => Math.floor(place / this.area)));
      if (here.has(map)) with_++;
      for (const other of here) {
        all[other]++;
        if (here.has(map)) shared[other]++;
      }
    }
    const found = Array.from(all, (n, other) => {
      const share = with_ > 0 ? shared[other] / with_ : 0;
      return { map: other, share, lift: n > 0 ? share / (n / this.count) : 0 };
    });
    return found.filter((entry) => entry.map !== map && entry.share > 0.02).sort((a, b) => b.lift - a.lift);
  }
}

/** A repeatable draw of `count` items without repetition. @template T @param {T[]} items @param {number} count @param {number} seed */
export function drawSome(items, count, seed) {
  const left = items.slice();
  let state = (seed * 2654435761 + 12345) >>> 0;
  const chosen = [];
  while (left.length && chosen.length < count) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    chosen.push(left.splice(Math.floor((state / 2 ** 32) * left.length), 1)[0]);
  }
  return chosen;
}
