// The latents that are shown and all that follows from them, each computed once.
import { allWeights, descend, networkOf, objective } from "./engine.js";
import { clamp } from "./formulas.js";
import { placeOf } from "./geometry.js";
import { featureColours, largestOf } from "./pictures.js";
import { regionCount } from "./pooling.js";
import { toImage, toSignal } from "./stage.js";
import { unpackModel } from "./unpack.js";

/** @typedef {import("./engine.js").Latents} Latents */

/**
 * What the page carries.
 * @typedef {object} PageData
 * @property {string} name of the model
 * @property {string} learnedFrom images that it learned from, in words; "" if nobody knows
 * @property {string} about where it comes from, for the footer
 * @property {boolean} strokes whether its images are strokes of ink
 * @property {number} height
 * @property {number} width
 * @property {import("./unpack.js").PackedModel} model
 * @property {import("./engine.js").Settings} settings with which the page begins
 * @property {{ lambda: number, alpha: number, steps: number, poolingStep: number }} testSettings
 * @property {import("./examples.js").PackedExamples} examples
 */

/** One active feature of a layer. @typedef {{ j: number, map: number, row: number, column: number, value: number }} Active */

const MOST_DRAWN = 150; // active features of a layer that are drawn, the largest first

export class Shown {
  /** @param {PageData} page */
  constructor(page) {
    this.page = page;
    this.model = unpackModel(page.model);
    this.network = networkOf(this.model, page.height, page.width);
    this.top = this.network.layers.length;
    this.input = this.model.input;
    const photograph = this.input.kind !== "none"; // drawn as it is, and not as ink on paper
    this.size = { channels: page.model.channels, height: page.height, width: page.width, photograph };
    this.inkSize = { ...this.size, channels: this.network.channels }; // of what features draw
    this.pixels = this.size.channels * page.height * page.width;
    this.isStrokes = page.strokes;
    /** What the image is made of, in words. */
    this.substance = "brightness";
    if (photograph) this.substance = "detail";
    if (page.strokes) this.substance = "ink";
    this.colours = this.network.layers.map((layer) => featureColours(layer.regions.maps));
    /** @type {Float64Array} */ this.image = new Float64Array(this.pixels);
    /** @type {Float64Array} */ this.signal = new Float64Array(0);
    /** @type {import("./stage.js").Background} */ this.takenOff = { low: null, scale: null }; // by the input stage
    this.setPixels(this.image);
    /** @type {Latents} */ this.latents = this.emptyLatents();
    this.weakest = 0; // share of the strongest feature from which on features are shown
    /** @type {Map<string, any>} */ this.cache = new Map(); // emptied whenever the image or the latents change
  }

  settings() {
    return this.page.settings;
  }

  /** Take an image, and what of it is to be explained. @param {Float64Array} image */
  setPixels(image) {
    this.image = image;
    const { signal, background } = toSignal(image, this.size, this.input);
    this.signal = signal;
    this.takenOff = background;
    const { channels, height, width } = this.inkSize;
    const inks = new Float64Array(height * width);
    signal.forEach((value, i) => (inks[i % inks.length] += Math.abs(value) / channels));
    /** What is drawn as full ink: the mean over all channels, where it is largest. */
    this.fullInk = this.size.photograph ? largestOf(inks) || 1 : 1;
  }

  /** What of an image is to be explained. @param {Float64Array} image */
  signalOf(image) {
    return toSignal(image, this.size, this.input).signal;
  }

  /** The image that a signal stands for, on the ground of the image that is shown. @param {Float64Array} signal */
  toImage(signal) {
    return toImage(signal, this.takenOff, this.size, this.input);
  }

  reconstruction() {
    return this.#once("reconstruction", () => this.toImage(this.descent().pHat[0]));
  }

  /** What the features leave of the signal. */
  error() {
    return this.#once("error", () => this.descent().pHat[0].map((value, i) => value - this.signal[i]));
  }

  /** @template T @param {string} key @param {() => T} compute @returns {T} */
  #once(key, compute) {
    if (!this.cache.has(key)) this.cache.set(key, compute());
    return this.cache.get(key);
  }

  weights() {
    return this.#once("weights", () => allWeights(this.network, this.latents.theta));
  }

  /** p̂ of every layer (0: the reconstruction) and z. */
  descent() {
    return this.#once("descent", () => descend(this.network, this.latents.p, this.weights()));
  }

  objective() {
    const { lambda, alpha } = this.settings();
    return this.#once("objective", () => objective(this.error(), this.latents.p, lambda, alpha));
  }

  /** How many features of a layer are not 0. @param {number} k */
  activeCount(k) {
    return this.#once(`count ${k}`, () => this.descent().pHat[k].reduce((count, value) => count + (value === 0 ? 0 : 1), 0));
  }

  /** The active features of a layer that can be seen, the largest first; of a lower layer, those that come down to it. @param {number} k */
  active(k) {
    return this.#once(`active ${k} ${this.weakest}`, () => {
      const p = this.descent().pHat[k];
      const { regions } = this.network.layers[k - 1];
      const least = p.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0) * Math.max(this.weakest, k === this.top ? 0.005 : 0.08);
      /** @type {Active[]} */ const found = [];
      p.forEach((value, j) => {
        if (value !== 0 && Math.abs(value) >= least) found.push({ j, ...placeOf(regions, j), value });
      });
      return found.sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, MOST_DRAWN);
    });
  }

  /** What features of layer k draw with the Gaussians that are shown. @param {number} k @param {Float64Array} p */
  drawnBy(k, p) {
    return descend(this.network, p, this.weights().slice(0, k)).pHat[0];
  }

  /** What each feature of layer k draws, all its places together. @param {number} k */
  parts(k) {
    return this.#once(`parts ${k}`, () => {
      const p = this.descent().pHat[k];
      const area = p.length / this.network.layers[k - 1].regions.maps;
      return this.colours[k - 1].flatMap((colour, map) => {
        if (!p.subarray(map * area, (map + 1) * area).some((value) => value !== 0)) return [];
        const alone = new Float64Array(p.length);
        alone.set(p.subarray(map * area, (map + 1) * area), map * area);
        return [{ map, colour, pixels: this.drawnBy(k, alone) }];
      });
    });
  }

  /** What one active feature draws. @param {number} k @param {number} j */
  drawnAlone(k, j) {
    return this.#once(`alone ${k} ${j}`, () => {
      const alone = new Float64Array(regionCount(this.network.layers[k - 1].regions));
      alone[j] = this.descent().pHat[k][j];
      return this.drawnBy(k, alone);
    });
  }

  /** @param {Float32Array[]} message p, then μ_y, μ_x, γ_y, γ_x of every layer @returns {Latents} */
  latentsOf(message) {
    const [p, ...rest] = message.map((values) => Float64Array.from(values));
    const theta = this.network.layers.map((_, k) => {
      const [muY, muX, gammaY, gammaX] = rest.slice(4 * k, 4 * k + 4);
      return { muY, muX, gammaY, gammaX };
    });
    return { p, theta };
  }

  emptyLatents() {
    const sizes = this.network.layers.map(({ regions }) => regionCount(regions));
    const zeros = sizes.flatMap((n) => [1, 2, 3, 4].map(() => new Float32Array(n)));
    return this.latentsOf([new Float32Array(sizes[sizes.length - 1]), ...zeros]);
  }

  /** The bounds that inference keeps. @param {number} k @param {number} mu */
  boundMu(k, mu) {
    const reach = (this.network.layers[k - 1].regions.size - 1) / 2;
    return clamp(mu, -reach, reach);
  }

  /** @param {number} gamma */
  boundGamma(gamma) {
    return clamp(gamma, this.page.settings.gammaMin, this.page.settings.gammaMax);
  }
}
