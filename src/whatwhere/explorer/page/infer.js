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
    const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    this.worker = new Worker(url);
    this.worker.postMessage({ type: "model", model, height, width });
    this.worker.onmessage = (event) => this.#receive(event.data);
    this.id = 0;
    /** @type {(report: Report) => void} */ this.onReport = () => {};
  }

  /** Start a job; an earlier one is given up. @param {Omit<Job, "id">} job @param {(report: Report) => void} onReport */
  start(job, onReport) {
    this.id += 1;
    this.onReport = onReport;
    this.worker.postMessage({ type: "infer", job: { ...job, id: this.id } });
  }

  cancel() {
    this.id += 1;
    this.worker.postMessage({ type: "cancel" });
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
