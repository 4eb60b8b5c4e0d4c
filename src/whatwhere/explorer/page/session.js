// What the page knows: its state, the trace of inference, and the latents that are shown. Panels read it and are told
// what has changed, once a frame.
import { fromAddress, LEVELS, roundAction, toAddress } from "./address.js";
import { featureColours } from "./colours.js";
import { allWeights, descend, networkOf, objective } from "./engine.js";
import { placeOf } from "./geometry.js";
import { Inference, Queue } from "./infer.js";
import { clamp, regionCount } from "./pooling.js";
import { unpackModel } from "./unpack.js";

/** @typedef {import("./address.js").State} State */
/** @typedef {import("./address.js").Action} Action */
/** @typedef {import("./address.js").ImageChoice} ImageChoice */
/** @typedef {import("./engine.js").Latents} Latents */
/** @typedef {import("./engine.js").Objective} Objective */
/** @typedef {"image" | "trace" | "latents" | "selection" | "other" | "scheme" | "view"} Change */

/**
 * What the page carries.
 * @typedef {object} PageData
 * @property {string} name of the model
 * @property {string} about where it comes from, for the footer
 * @property {number} height
 * @property {number} width
 * @property {import("./unpack.js").PackedModel} model
 * @property {import("./engine.js").Settings} settings with which the page begins
 * @property {{ lambda: number, alpha: number, steps: number, poolingStep: number }} testSettings
 * @property {import("./examples.js").PackedExamples} examples
 */

/** One active feature of a layer. @typedef {{ j: number, map: number, row: number, column: number, value: number }} Active */

const SHOW_EVERY = 70; // milliseconds between pictures of an inference that is running
const MOST_SHOWN = 150; // active features of a layer that are shown, the largest first

export class Session {
  /**
   * @param {PageData} page
   * @param {string} workerSource
   * @param {import("./examples.js").Examples} examples
   */
  constructor(page, workerSource, examples) {
    this.page = page;
    this.examples = examples;
    this.network = networkOf(unpackModel(page.model), page.height, page.width);
    this.model = unpackModel(page.model);
    this.top = this.network.layers.length;
    this.size = { channels: page.model.channels, height: page.height, width: page.width };
    this.pixels = this.size.channels * page.height * page.width;
    this.colours = this.network.layers.map((layer) => featureColours(layer.regions.maps));
    this.inference = new Inference(workerSource, page);
    this.background = new Queue(new Inference(workerSource, page));
    this.sampling = new Queue(new Inference(workerSource, page)); // many jobs that nobody waits for
    /** @type {State} */
    this.defaults = {
      image: { example: 0 },
      other: null,
      ...{ lambda: page.settings.lambda, alpha: page.settings.alpha },
      ...{ steps: page.settings.steps, poolingStep: page.settings.poolingStep },
      ...{ step: null, actions: [], layer: this.top, view: "colours", feature: null, selected: null },
      ...{ blend: 1, compare: false, signal: false, scheme: "auto" },
    };
    this.state = { ...this.defaults };
    /** @type {{ objective: Objective, latents: Float32Array[] }[]} */ this.trace = [];
    /** @type {Action[]} */ this.edits = []; // to the last state of the trace
    this.running = false;
    this.shown = 0;
    this.image = new Float64Array(this.pixels);
    /** @type {Latents} */ this.latents = this.emptyLatents();
    /** @type {Set<Change>} */ this.changes = new Set();
    /** @type {((changes: Set<Change>) => void)[]} */ this.panels = [];
    /** @type {Map<string, any>} */ this.cache = new Map();
  }

  // State and address ------------------------------------------------------------------------------------------

  limits() {
    return {
      examples: this.examples.count,
      pixels: this.pixels,
      regions: this.network.layers.map(({ regions }) => regionCount(regions)),
      maps: this.network.layers.map(({ regions }) => regions.maps),
    };
  }

  /** Take over what an address says, and infer it. @param {string} fragment */
  follow(fragment) {
    this.state = fromAddress(fragment, this.defaults, this.limits());
    this.image = this.imageOf(this.state.image);
    this.changed("image", "selection", "other", "scheme", "view");
    this.run();
  }

  address() {
    return toAddress(this.state, this.defaults);
  }

  /** @param {Partial<State>} patch @param {...Change} changes */
  set(patch, ...changes) {
    Object.assign(this.state, patch);
    this.changed(...changes);
  }

  /** @param {...Change} changes */
  changed(...changes) {
    if (this.changes.size === 0) requestAnimationFrame(() => this.#draw());
    for (const change of changes) this.changes.add(change);
    if (changes.includes("latents") || changes.includes("image")) this.cache.clear();
    if (changes.length === 0) this.changes.add("view");
  }

  #draw() {
    const changes = this.changes;
    this.changes = new Set();
    for (const panel of this.panels) panel(changes);
  }

  // Images -----------------------------------------------------------------------------------------------------

  /** @param {ImageChoice} choice */
  imageOf(choice) {
    if ("example" in choice) return this.examples.image(choice.example);
    return Float64Array.from(choice.levels, (level) => level / LEVELS);
  }

  /** @param {ImageChoice} image */
  setImage(image) {
    this.set({ image, actions: [], step: null, selected: null }, "image", "selection");
    this.image = this.imageOf(image);
    this.run();
  }

  /** @param {Partial<Pick<State, "lambda" | "alpha" | "steps" | "poolingStep">>} patch */
  setSettings(patch) {
    this.set({ ...patch, actions: [], step: null }, "view");
    this.run();
  }

  // Inference --------------------------------------------------------------------------------------------------

  settings() {
    const { lambda, alpha, steps, poolingStep } = this.state;
    return { ...this.page.settings, lambda, alpha, steps, poolingStep };
  }

  /** Infer the image from the start, then repeat what was changed. */
  run() {
    this.trace = [];
    this.edits = [];
    this.#segment(null, this.state.actions.slice());
  }

  /**
   * T steps; then the actions that are left, up to the next that continues inference.
   * @param {Latents | null} from
   * @param {Action[]} actions
   */
  #segment(from, actions) {
    this.running = true;
    const job = { image: this.image, settings: this.settings(), pooling: null, from, everyStep: true };
    this.inference.start(job, ({ objective: parts, latents, done }) => {
      this.trace.push({ objective: parts, latents });
      if (done) this.#finish(actions);
      if (!done && this.trace.length > 1 && performance.now() - this.shown < SHOW_EVERY) return;
      this.shown = performance.now();
      this.#show();
    });
  }

  /** @param {Action[]} actions */
  #finish(actions) {
    this.running = false;
    while (actions.length) {
      const action = /** @type {Action} */ (actions.shift());
      if (action.type === "back") this.trace.length = Math.min(this.trace.length, action.step + 1);
      else if (action.type !== "continue") this.edits.push(action);
      else {
        const from = this.#edited();
        this.edits = [];
        this.#segment(from, actions);
        return;
      }
    }
  }

  /** The last state of the trace with the edits to it. */
  #edited() {
    const latents = this.latentsOf(this.trace[this.trace.length - 1].latents);
    for (const edit of this.edits) applyEdit(latents, edit);
    return latents;
  }

  /** Show a step; null is the last one, with its edits. @param {number | null} step */
  showStep(step) {
    const last = this.trace.length - 1;
    this.state.step = step === null || step >= last ? null : Math.max(0, step);
    this.#show();
  }

  shownStep() {
    return Math.min(this.state.step ?? Infinity, this.trace.length - 1);
  }

  #show() {
    if (!this.trace.length) return;
    const { step } = this.state;
    const isLast = step === null || (step >= this.trace.length - 1 && !this.running);
    if (isLast) this.latents = this.#edited();
    else this.latents = this.latentsOf(this.trace[this.shownStep()].latents);
    this.changed("trace", "latents");
  }

  // Edits ------------------------------------------------------------------------------------------------------

  /** Change what or where of one region at the step that is shown. @param {Action} action */
  edit(action) {
    const { actions } = this.state;
    if (this.running || this.shownStep() < this.trace.length - 1) {
      this.inference.cancel();
      this.running = false;
      const step = this.shownStep();
      this.trace.length = step + 1;
      this.edits = [];
      actions.push({ type: "back", step });
      this.state.step = null;
    }
    const kept = roundAction(action);
    for (const list of [this.edits, actions]) {
      const last = list[list.length - 1];
      if (last && sameTarget(last, kept)) list.pop();
      list.push(kept);
    }
    this.#show();
  }

  /** Forget all edits, and return to what inference found. */
  undoEdits() {
    const lastRun = this.state.actions.map(({ type }) => type).lastIndexOf("continue");
    this.state.actions = this.state.actions.slice(0, lastRun + 1);
    this.run();
  }

  /** T further steps from what is shown. */
  continueHere() {
    if (this.running || this.shownStep() < this.trace.length - 1) {
      this.state.actions.push({ type: "back", step: this.shownStep() });
      this.trace.length = this.shownStep() + 1;
      this.edits = [];
    }
    const from = this.#edited();
    this.state.actions.push({ type: "continue" });
    this.state.step = null;
    this.edits = [];
    this.#segment(from, []);
  }

  // What is shown ----------------------------------------------------------------------------------------------

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

  residual() {
    return this.#once("residual", () => this.descent().pHat[0].map((value, i) => value - this.image[i]));
  }

  objective() {
    const { lambda, alpha } = this.state;
    return this.#once("objective", () => objective(this.residual(), this.latents.p, lambda, alpha));
  }

  /** The active features of a layer, the largest first; of a lower layer, those that come down to it. @param {number} k */
  active(k) {
    return this.#once(`active ${k}`, () => {
      const p = this.descent().pHat[k];
      const { regions } = this.network.layers[k - 1];
      const least = p.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0) * (k === this.top ? 0.005 : 0.08);
      /** @type {Active[]} */ const found = [];
      p.forEach((value, j) => {
        if (value !== 0 && Math.abs(value) >= least) found.push({ j, ...placeOf(regions, j), value });
      });
      return found.sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, MOST_SHOWN);
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

/** @param {Action} a @param {Action} b */
function sameTarget(a, b) {
  if (a.type === "what" && b.type === "what") return a.j === b.j;
  return a.type === "where" && b.type === "where" && a.j === b.j && a.layer === b.layer;
}

/** @param {Latents} latents changed @param {Action} edit */
function applyEdit(latents, edit) {
  if (edit.type === "what") latents.p[edit.j] = edit.value;
  if (edit.type !== "where") return;
  const theta = latents.theta[edit.layer - 1];
  [theta.muY[edit.j], theta.muX[edit.j]] = [edit.muY, edit.muX];
  [theta.gammaY[edit.j], theta.gammaX[edit.j]] = [edit.gammaY, edit.gammaX];
}
