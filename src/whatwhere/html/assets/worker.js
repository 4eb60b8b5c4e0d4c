// Inference in the background: one job at a time, a message for every step, and a pause in which it can be cancelled.
import { allWeights, measure, networkOf, start, step, withPooling } from "./engine.js";
import { unpackModel } from "./unpack.js";

/** @typedef {import("./engine.js").Latents} Latents */
/** @typedef {import("./engine.js").Settings} Settings */

/**
 * @typedef {object} Job
 * @property {number} id
 * @property {Float64Array} image
 * @property {Settings} settings
 * @property {"gaussian" | "max" | null} pooling null: the model's own
 * @property {Latents | null} from where to start; null: moment matching and p = 0
 * @property {boolean} everyStep send every state, or the last one alone
 */

/**
 * One state of inference. Values are sent as float32: half the memory, and more than a screen shows.
 * @typedef {object} Report
 * @property {number} id
 * @property {number} step
 * @property {boolean} done
 * @property {{ reconstruction: number, penalty: number, nonzeros: number }} objective
 * @property {Float32Array[]} latents p, then μ_y, μ_x, γ_y, γ_x of every layer
 */

/** @param {Latents} latents */
function toMessage({ p, theta }) {
  return [p, ...theta.flatMap((t) => [t.muY, t.muX, t.gammaY, t.gammaX])].map((a) => Float32Array.from(a));
}

/** Runs jobs; `post` sends a report. @param {(report: Report, transfer: ArrayBufferLike[]) => void} post */
function makeRunner(post) {
  /** @type {import("./engine.js").Network} */ let network;
  let current = -1;

  /** @param {Job} job */
  async function infer(job) {
    const used = job.pooling ? withPooling(network, job.pooling) : network;
    const latents = job.from ?? start(used, job.image, job.settings);
    const weights = allWeights(used, latents.theta);
    let paused = performance.now();
    for (let t = 0; t <= job.settings.steps; t++) {
      const done = t === job.settings.steps;
      const wanted = done || job.everyStep;
      const state = wanted ? toMessage(latents) : []; // before the step, since the step measures what it finds
      const objective = done
        ? measure(used, job.image, latents, job.settings)
        : step(used, job.image, latents, weights, job.settings);
      if (wanted) {
        const { reconstruction, penalty, nonzeros } = objective;
        const parts = { reconstruction, penalty, nonzeros };
        post({ id: job.id, step: t, done, objective: parts, latents: state }, state.map((a) => a.buffer));
      }
      if (performance.now() - paused > 10) {
        await pause();
        paused = performance.now();
        if (current !== job.id) return;
      }
    }
  }

  /** @param {any} message */
  return (message) => {
    if (message.type === "model") network = networkOf(unpackModel(message.model), message.height, message.width);
    if (message.type === "cancel") current = -1;
    if (message.type === "infer") {
      current = message.job.id;
      void infer(message.job);
    }
  };
}

/** Let waiting messages in. A message channel is quicker than a timer, which browsers slow down. */
const pause = () =>
  new Promise((resolve) => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => {
      channel.port1.close();
      resolve(null);
    };
    channel.port2.postMessage(null);
  });

const run = makeRunner((report, transfer) => /** @type {any} */ (self).postMessage(report, transfer));
self.onmessage = (event) => run(event.data);
