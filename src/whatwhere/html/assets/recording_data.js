// A recording on its page: samples, waveforms and events, and what the accepted events leave.

import { fromBase64 } from "./unpack.js";

/** @typedef {{ sample: number, waveform: number, amplitude: number, channel: number, doubtful: boolean, line: string }} Row */

/**
 * Samples of a channel, stored as whole numbers.
 * @param {{ scale: number, values: string }} packed
 */
export function unpackSamples(packed) {
  const whole = new Int16Array(fromBase64(packed.values).buffer);
  const samples = new Float32Array(whole.length);
  for (let i = 0; i < whole.length; i++) samples[i] = whole[i] === -32768 ? NaN : whole[i] * packed.scale;
  return samples;
}

/**
 * Add a waveform, several times, to what is left of each channel. Its peak lies at a fraction of a sample.
 * @param {Float32Array[]} left
 * @param {{ peak: number, channels: number[][] }} waveform
 * @param {Row} row
 * @param {number} sign
 */
export function addEvent(left, waveform, row, sign) {
  const begin = row.sample - waveform.peak;
  const first = Math.ceil(begin);
  waveform.channels.forEach((shape, c) => {
    for (let t = Math.max(0, first); t < Math.min(left[c].length, begin + shape.length); t++) {
      const at = t - begin;
      const low = Math.floor(at);
      const value = shape[low] + (at - low) * ((shape[low + 1] ?? 0) - shape[low]);
      left[c][t] += sign * row.amplitude * value;
    }
  });
}

/**
 * The smallest and the largest of some samples, for each of `columns` columns.
 * @param {Float32Array} samples
 * @param {number} from
 * @param {number} to
 * @param {number} columns
 */
export function extremes(samples, from, to, columns) {
  const low = new Float32Array(columns).fill(NaN);
  const high = new Float32Array(columns).fill(NaN);
  for (let x = 0; x < columns; x++) {
    const begin = Math.max(0, Math.floor(from + ((to - from) * x) / columns));
    const end = Math.min(samples.length, Math.max(begin + 1, Math.ceil(from + ((to - from) * (x + 1)) / columns) + 1));
    for (let i = begin; i < end; i++) {
      const value = samples[i];
      if (!(value >= low[x])) low[x] = Number.isNaN(value) ? low[x] : value;
      if (!(value <= high[x])) high[x] = Number.isNaN(value) ? high[x] : value;
    }
  }
  return { low, high };
}
