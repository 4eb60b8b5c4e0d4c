// Algorithm 1 of the paper, its inner loop, for one image: infer the features p (what) and the Gaussians θ (where).
import { convolveDown, convolveUp, filtersOf } from "./convolution.js";
import { lineSearch, powered, shrinkPowered } from "./formulas.js";
import { fitTheta } from "./moments.js";
import { signalChannels } from "./stage.js";
import { pool, regionCount, regionsOf, unpool, updatePooling, weightsOf } from "./pooling.js";

/** @typedef {import("./convolution.js").Filters} Filters */
/** @typedef {import("./pooling.js").Regions} Regions */
/** @typedef {import("./pooling.js").Theta} Theta */
/** @typedef {import("./pooling.js").Weights} Weights */

/**
 * One layer of a model as it is stored.
 * @typedef {object} LayerModel
 * @property {number} maps
 * @property {number} filterSize
 * @property {"gaussian" | "max" | "sum"} kind of pooling
 * @property {number} poolSize
 * @property {number} stride
 * @property {Float32Array} filters [below, maps, K, K]
 * @property {Uint8Array} connected [below, maps]
 */

/**
 * @typedef {object} Model
 * @property {number} channels
 * @property {boolean} nonnegative
 * @property {import("./stage.js").Input} input
 * @property {LayerModel[]} layers
 */

/**
 * @typedef {object} Settings
 * @property {number} lambda λ, weight of the reconstruction
 * @property {number} alpha α of the penalty Σ|p|^α
 * @property {number} steps T
 * @property {number} poolingStep β_U, step of the pooling variables
 * @property {number} gammaMin
 * @property {number} gammaMax
 * @property {number} momentPower
 */

/** What and where: features of the top layer, and the Gaussians of every layer. @typedef {{ p: Float64Array, theta: Theta[] }} Latents */

/**
 * The objective C = λ/2 ‖Rp - v‖² + Σ|p|^α in its parts.
 * @typedef {{ reconstruction: number, penalty: number, nonzeros: number }} Objective
 */

/**
 * One layer of a network at a given image size.
 * @typedef {object} Layer
 * @property {"gaussian" | "max" | "sum"} kind
 * @property {number} below maps of the signal that the layer reconstructs
 * @property {number} height of that signal
 * @property {number} width
 * @property {number} filterSize
 * @property {Regions} regions
 * @property {Filters} filters
 */

/**
 * Maps z_k of every layer that are overwritten in every step, since new ones would cost a tenth of its time.
 * @typedef {{ z: Float64Array[], errors: Float64Array[] }} Workspace
 */

/** @typedef {{ channels: number, height: number, width: number, nonnegative: boolean, layers: Layer[], workspace: Workspace }} Network */

/**
 * A model at an image size. Maps z are K - 1 larger than the signal below, regions pool them.
 * @param {Model} model
 * @param {number} height
 * @param {number} width
 * @returns {Network}
 */
export function networkOf(model, height, width) {
  let below = signalChannels(model);
  const network = { channels: below, height, width, nonnegative: model.nonnegative };
  const layers = model.layers.map((layer) => {
    const { maps, filterSize, kind, poolSize, stride } = layer;
    const regions = regionsOf(maps, height + filterSize - 1, width + filterSize - 1, poolSize, stride);
    const filters = filtersOf(layer.filters, layer.connected, below, maps, filterSize, height, width);
    const made = { kind, below, height, width, filterSize, regions, filters };
    [below, height, width] = [maps, regions.rows, regions.columns];
    return made;
  });
  return { ...network, layers, workspace: { z: layers.map(emptyMaps), errors: layers.map(emptyMaps) } };
}

/** Maps z of a layer, all 0. @param {Layer} layer */
const emptyMaps = ({ regions }) => new Float64Array(regions.maps * regions.height * regions.width);

/**
 * The same network with another kind of pooling.
 * @param {Network} network
 * @param {"gaussian" | "max" | "sum"} kind
 * @returns {Network}
 */
export const withPooling = (network, kind) => ({
  ...network,
  layers: network.layers.map((layer) => ({ ...layer, kind })),
});

/**
 * Reconstruct from the layer that the weights end at: [p̂_0 = R p, p̂_1, …, p̂_l = p], and z_k on the way.
 * @param {Network} network
 * @param {Float64Array} p
 * @param {Weights[]} weights
 * @param {Float64Array[]} [z] maps of every layer, written
 */
export function descend(network, p, weights, z = network.layers.map(emptyMaps)) {
  const pHat = [p];
  for (let k = weights.length; k > 0; k--) {
    const { regions, below, height, width, filters } = network.layers[k - 1];
    unpool(pHat[0], weights[k - 1], regions, z[k - 1].fill(0));
    pHat.unshift(new Float64Array(below * height * width));
    convolveDown(z[k - 1], filters, pHat[0]);
  }
  return { pHat, z };
}

/**
 * Propagate up: g = Rᵀ e at the top, and the signal at every z_k.
 * @param {Network} network
 * @param {Float64Array} e
 * @param {Weights[]} weights
 * @param {Float64Array[]} [z] maps of every layer, written
 */
export function ascend(network, e, weights, z = network.layers.map(emptyMaps)) {
  let signal = e;
  network.layers.forEach((layer, k) => {
    convolveUp(signal, layer.filters, z[k]);
    signal = new Float64Array(regionCount(layer.regions));
    pool(z[k], weights[k], layer.regions, signal);
  });
  return { g: signal, z };
}

/**
 * The start of inference: p = 0, and Gaussians fitted to the image propagated up.
 * @param {Network} network
 * @param {Float64Array} image [channels, height, width]
 * @param {Settings} settings
 * @returns {Latents}
 */
export function start(network, image, settings) {
  let signal = image;
  const theta = network.layers.map((layer) => {
    const z = emptyMaps(layer);
    convolveUp(signal, layer.filters, z);
    const fitted = fitTheta(layer.kind, z, layer.regions, settings);
    signal = new Float64Array(regionCount(layer.regions));
    pool(z, weightsOf(fitted, layer.regions), layer.regions, signal);
    return fitted;
  });
  return { p: new Float64Array(signal.length), theta };
}

/**
 * The weights of every layer.
 * @param {Network} network
 * @param {Theta[]} theta
 */
export const allWeights = (network, theta) => theta.map((t, k) => weightsOf(t, network.layers[k].regions));

/**
 * One step of Algorithm 1, in place, all of it from one residual; returns the objective before the step, and β.
 * @param {Network} network
 * @param {Float64Array} image
 * @param {Latents} latents changed
 * @param {Weights[]} weights of latents.theta, changed with them
 * @param {Settings} settings
 */
export function step(network, image, latents, weights, settings) {
  const { lambda, alpha } = settings;
  const { p, theta } = latents;
  const { workspace } = network;
  const { pHat } = descend(network, p, weights, workspace.z); //   reconstruct: p̂_0 = R p
  const e = minus(pHat[0], image); //                              the residual
  const { g, z: errors } = ascend(network, e, weights, workspace.errors); // ∇p = Rᵀ e, and the error at every z_k
  const measured = objective(e, p, lambda, alpha);
  const beta = lineSearch(squares(g), lambda * squares(descend(network, g, weights, workspace.z).pHat[0]));
  const next = new Float64Array(p.length);
  for (let j = 0; j < p.length; j++) {
    const moved = p[j] - lambda * beta * g[j]; //                          gradient step
    if (network.nonnegative && moved <= 0) continue; //                    projection step: shrinkage keeps the sign
    next[j] = shrinkPowered(moved, beta, alpha); //                               shrinkage step
  }
  network.layers.forEach(({ kind, regions }, k) => {
    if (kind !== "gaussian") return; //                            switches do not move
    const stepSize = lambda * settings.poolingStep;
    updatePooling(theta[k], weights[k], regions, errors[k], pHat[k + 1], stepSize, settings.gammaMin, settings.gammaMax);
  });
  latents.p = next;
  return { ...measured, beta };
}

/**
 * The parts of the cost from the residual e = Rp - v.
 * @param {Float64Array} e
 * @param {Float64Array} p
 * @param {number} lambda
 * @param {number} alpha
 * @returns {Objective}
 */
export function objective(e, p, lambda, alpha) {
  let penalty = 0;
  let nonzeros = 0;
  for (const value of p) {
    if (value === 0) continue;
    nonzeros++;
    penalty += powered(value, alpha);
  }
  return { reconstruction: (lambda / 2) * squares(e), penalty, nonzeros };
}

/**
 * The objective of latents as they stand.
 * @param {Network} network
 * @param {Float64Array} image
 * @param {Latents} latents
 * @param {Settings} settings
 */
export function measure(network, image, latents, settings) {
  const { pHat } = descend(network, latents.p, allWeights(network, latents.theta));
  const e = minus(pHat[0], image);
  return objective(e, latents.p, settings.lambda, settings.alpha);
}

/**
 * @param {Float64Array} a
 * @param {Float64Array} b
 */
function minus(a, b) {
  const difference = new Float64Array(a.length);
  for (let i = 0; i < a.length; i++) difference[i] = a[i] - b[i];
  return difference;
}

/** @param {Float64Array} values */
function squares(values) {
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += values[i] * values[i];
  return sum;
}
