// The example images that the page carries, with their codes: sparse, and quantised to a byte a feature.
import { inflate } from "./unpack.js";

/**
 * @typedef {object} PackedExamples
 * @property {number} count
 * @property {string} images gzip of uint8 [count, channels, height, width]
 * @property {(number | null)[]} labels
 * @property {string[]} classes names of the labels
 * @property {string[]} codes of a part of the examples each, gzip of: uint32 active [n], float32 largest [n], uint32
 *   places, uint8 values
 * @property {number} parts how many there are; those that the page does not carry are at the address codes/NUMBER
 * @property {number} part examples in each, the last one aside
 * @property {number} steps of the inference that made the codes
 */

/** Active places of the top layer and their features. @typedef {{ places: Uint32Array, values: Float64Array }} Code */

export class Examples {
  /**
   * The examples with the codes that the page carries.
   * @param {PackedExamples} packed
   * @param {number} pixels of one image
   * @param {number} area regions of one map of the top layer
   */
  static async unpack(packed, pixels, area) {
    const examples = new Examples(packed, await inflate(packed.images), pixels, area);
    for (const codes of packed.codes) await examples.add(codes);
    return examples;
  }

  /**
   * @param {PackedExamples} packed
   * @param {Uint8Array} images
   * @param {number} pixels
   * @param {number} area
   */
  constructor(packed, images, pixels, area) {
    this.packed = packed;
    this.count = packed.count;
    this.labels = packed.labels;
    this.classes = packed.classes;
    this.images = images;
    this.pixels = pixels;
    this.area = area;
    /** @type {Code[]} */ this.codes = []; // of the first examples; the others follow
    /** @type {number[]} */ this.lengths = [];
    /** How many examples will have a code: all of them while parts follow. */
    this.expected = Math.min(packed.parts * packed.part, packed.count);
  }

  /** Add the codes of the next part. @param {string} packed */
  async add(packed) {
    const { buffer } = await inflate(packed);
    const n = Math.min(this.packed.part, this.count - this.codes.length);
    const active = new Uint32Array(buffer, 0, n);
    const largest = new Float32Array(buffer, 4 * n, n);
    const total = active.reduce((a, b) => a + b, 0);
    const places = new Uint32Array(buffer, 8 * n, total);
    const levels = new Uint8Array(buffer, 8 * n + 4 * total, total);
    let start = 0;
    active.forEach((length, i) => {
      const end = start + length;
      const values = Float64Array.from(levels.subarray(start, end), (level) => (level / 255) * largest[i]);
      this.codes.push({ places: places.subarray(start, end), values });
      this.lengths.push(Math.sqrt(values.reduce((sum, value) => sum + value * value, 0)));
      start = end;
    });
  }

  /**
   * Fetch the parts that the page does not carry, one after the other.
   * @param {() => Promise<void>} turn waited for before each
   */
  async *fetchOthers(turn) {
    try {
      for (let part = this.packed.codes.length; part < this.packed.parts; part++) {
        await turn();
        const answer = await fetch(`codes/${part}`);
        if (!answer.ok) return;
        await this.add(await answer.text());
        yield this.codes.length;
      }
    } finally {
      this.expected = this.codes.length;
    }
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
      return { map: other, share, lift: n > 0 ? share / (n / this.codes.length) : 0 };
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
