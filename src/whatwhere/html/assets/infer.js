// The page's side of the workers: send a job, receive its states.

/** @typedef {import("./worker.js").Report} Report */
/** @typedef {import("./worker.js").Job} Job */

/** A worker made from the source that the page carries, so that it also runs from a file. */
export class Inference {
  /**
   * @param {string} source of worker.js with all it imports
   * @param {{ model: import("./unpack.js").PackedModel, height: number, width: number }} page
   */
  constructor(source, { model, height, width }) {
    this.source = source;
    this.page = { model, height, width };
    /** @type {Worker | null} */ this.worker = null; // made for the first job
    this.id = 0;
    /** @type {(report: Report) => void} */ this.onReport = () => {};
  }

  /** @param {any} message */
  #send(message) {
    if (!this.worker) {
      this.worker = new Worker(URL.createObjectURL(new Blob([this.source], { type: "text/javascript" })));
      this.worker.onmessage = (event) => this.#receive(event.data);
      this.worker.postMessage({ type: "model", ...this.page });
    }
    this.worker.postMessage(message);
  }

  /** Start a job; an earlier one is given up. @param {Omit<Job, "id">} job @param {(report: Report) => void} onReport */
  start(job, onReport) {
    this.id += 1;
    this.onReport = onReport;
    this.#send({ type: "infer", job: { ...job, id: this.id } });
  }

  cancel() {
    this.id += 1;
    this.#send({ type: "cancel" });
  }

  /** The last state of a job. @param {Omit<Job, "id" | "everyStep">} job @returns {Promise<Report>} */
  finish(job) {
    return new Promise((resolve) => this.start({ ...job, everyStep: false }, resolve));
  }

  /** @param {Report} report */
  #receive(report) {
    if (report.id === this.id) this.onReport(report);
  }
}

/** Runs jobs one after the other, each to its end: for examples, whose codes can wait. */
export class Queue {
  /** @param {Inference} inference */
  constructor(inference) {
    this.inference = inference;
    /** @type {Promise<unknown>} */ this.last = Promise.resolve();
  }

  /** @param {() => Omit<Job, "id" | "everyStep"> | null} makeJob asked when its turn comes; null: not wanted any more */
  add(makeJob) {
    const result = this.last.then(() => {
      const job = makeJob();
      return job ? this.inference.finish(job) : null;
    });
    this.last = result;
    return result;
  }
}
