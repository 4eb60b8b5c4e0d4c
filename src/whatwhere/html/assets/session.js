// What the page knows: its state, the trace of inference, and the latents that are shown. Panels read it and are told
// what has changed, once a frame.
import { fromAddress, LEVELS, RANGES, roundAction, toAddress } from "./address.js";
import { Inference, Queue } from "./infer.js";
import { regionCount } from "./pooling.js";
import { Shown } from "./shown.js";

/** @typedef {import("./address.js").State} State */
/** @typedef {import("./address.js").Action} Action */
/** @typedef {import("./address.js").ImageChoice} ImageChoice */
/** @typedef {import("./engine.js").Latents} Latents */
/** @typedef {import("./engine.js").Objective} Objective */
/** @typedef {import("./shown.js").PageData} PageData */
/** @typedef {import("./shown.js").Active} Active */
/** @typedef {"image" | "trace" | "latents" | "selection" | "other" | "examples" | "scheme" | "view"} Change */

const SHOW_EVERY = 70; // milliseconds between pictures of an inference that is running

export class Session extends Shown {
  /**
   * @param {PageData} page
   * @param {string} workerSource
   * @param {import("./examples.js").Examples} examples
   */
  constructor(page, workerSource, examples) {
    super(page);
    this.examples = examples;
    RANGES.lambda[1] = Math.max(RANGES.lambda[1], 10 * page.settings.lambda); // larger for faint signals
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
    /** @type {Session["trace"] | null} */ this.unedited = null; // what inference found before all edits
    this.running = false;
    this.shown = 0;
    /** @type {Set<Change>} */ this.changes = new Set();
    /** @type {((changes: Set<Change>) => void)[]} */ this.panels = [];
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
    this.setPixels(this.imageOf(this.state.image));
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
    document.body.setAttribute("aria-busy", "true"); // until the address, which is written last
    for (const change of changes) this.changes.add(change);
    if (changes.includes("latents") || changes.includes("image")) this.cache.clear();
    if (changes.length === 0) this.changes.add("view");
  }

  #draw() {
    const changes = this.changes;
    this.changes = new Set();
    for (const panel of this.panels) panel(changes);
  }

  /** Codes of examples that follow the page: they come while nothing else is inferred. */
  async completeExamples() {
    const idle = async () => {
      while (this.running) await new Promise((resolve) => setTimeout(resolve, 100));
    };
    try {
      for await (const _ of this.examples.fetchOthers(idle)) this.changed("examples");
    } catch {
      // the command that serves the page was ended: the page goes on with the codes that it has
    }
    this.changed("examples"); // no others follow
  }

  // Images -----------------------------------------------------------------------------------------------------

  /** @param {ImageChoice} choice */
  imageOf(choice) {
    if ("example" in choice) return this.examples.image(choice.example);
    return Float64Array.from(choice.levels, (level) => level / LEVELS);
  }

  /** The strongest feature of the code, or of an example where the code is empty. */
  strongest() {
    const [first] = this.active(this.top);
    return first ? Math.abs(first.value) : Math.max(...(this.examples.codes[0]?.values ?? []), 1e-3);
  }

  /** @param {ImageChoice} image */
  setImage(image) {
    this.set({ image, actions: [], step: null, selected: null }, "image", "selection");
    this.setPixels(this.imageOf(image));
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
    this.unedited = null;
    this.#segment(null, this.state.actions.slice());
  }

  /**
   * T steps; then the actions that are left, up to the next that continues inference.
   * @param {Latents | null} from
   * @param {Action[]} actions
   */
  #segment(from, actions) {
    this.running = true;
    this.changed("trace");
    const job = { image: this.signal, settings: this.settings(), pooling: null, from, everyStep: true };
    this.inference.start(job, ({ objective: parts, latents, done }) => {
      this.trace.push({ objective: parts, latents });
      if (done && from === null) this.unedited = this.trace.slice();
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

  /** Forget all edits, and return to what inference found before them. It runs again only if an edit interrupted it. */
  discardEdits() {
    this.state.actions = [];
    this.state.step = null;
    if (this.unedited === null) {
      this.run();
      return;
    }
    this.inference.cancel();
    this.running = false;
    this.edits = [];
    this.trace = this.unedited.slice();
    this.#show();
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
