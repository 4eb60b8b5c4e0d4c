// The input stage of a model (ops/input_stage.py): what of an image is explained, and the image that an explanation means.

/** @typedef {import("./pictures.js").Size} Size */

/**
 * @typedef {object} Input
 * @property {"none" | "highpass" | "onoff"} kind
 * @property {number} sigma of the low-pass that is taken off
 * @property {number} contrast strength of local contrast normalisation, 0: none
 * @property {number} contrastSigma
 * @property {number} contrastFloor
 */

/** What the stage took off: a low-pass for every channel, a contrast for all of them. @typedef {{ low: Float64Array | null, scale: Float64Array | null }} Background */

/** Channels of the signal. @param {{ channels: number, input: Input }} model */
export const signalChannels = ({ channels, input }) => (input.kind === "onoff" ? 2 * channels : channels);

/**
 * The signal that the model explains, and what was taken off.
 * @param {Float64Array} image [channels, height, width]
 * @param {Size} size
 * @param {Input} input
 */
export function toSignal(image, size, input) {
  const area = size.height * size.width;
  const low = input.kind === "none" ? null : lowpass(image, size, input.sigma);
  const detail = low ? image.map((value, i) => value - low[i]) : image.slice();
  const scale = input.contrast ? localContrast(detail, size, input) : null;
  if (scale) detail.forEach((value, i) => (detail[i] = value / scale[i % area]));
  const background = { low, scale };
  if (input.kind !== "onoff") return { signal: detail, background };
  const signal = new Float64Array(2 * detail.length);
  detail.forEach((value, i) => (signal[value > 0 ? i : i + detail.length] = Math.abs(value)));
  return { signal, background };
}

/**
 * The image that a signal stands for.
 * @param {Float64Array} signal
 * @param {Background} background
 * @param {Size} size
 * @param {Input} input
 */
export function toImage(signal, { low, scale }, { channels, height, width }, input) {
  const area = height * width;
  const image = signal.slice(0, channels * area);
  if (input.kind === "onoff") image.forEach((value, i) => (image[i] = value - signal[i + image.length]));
  image.forEach((value, i) => (image[i] = value * (scale ? scale[i % area] : 1) + (low ? low[i] : 0)));
  return image;
}

/** (local mean square over all channels + floor²)^(strength / 2). @param {Float64Array} detail @param {Size} size @param {Input} input */
function localContrast(detail, { channels, height, width }, { contrast, contrastSigma, contrastFloor }) {
  const power = new Float64Array(height * width);
  detail.forEach((value, i) => (power[i % power.length] += (value * value) / channels));
  const local = lowpass(power, { channels: 1, height, width }, contrastSigma);
  return local.map((value) => (Math.max(0, value) + contrastFloor ** 2) ** (contrast / 2));
}

/** The Gaussian mean of the pixels around each place, as far as there are any. @param {Float64Array} image @param {Size} size @param {number} sigma */
function lowpass(image, size, sigma) {
  const one = { ...size, channels: 1 };
  const seen = blur(new Float64Array(size.height * size.width).fill(1), one, sigma);
  return blur(image, size, sigma).map((value, i) => value / seen[i % seen.length]);
}

/** Rows, then columns, convolved with a Gaussian; nothing outside. @param {Float64Array} image @param {Size} size @param {number} sigma */
function blur(image, { channels, height, width }, sigma) {
  const reach = Math.ceil(3 * sigma);
  const kernel = Float64Array.from({ length: 2 * reach + 1 }, (_, i) => Math.exp(-((i - reach) ** 2) / (2 * sigma ** 2)));
  const sum = kernel.reduce((a, b) => a + b, 0);
  /** @param {Float64Array} values @param {number} stride between neighbours @param {number} count of places along the axis */
  const along = (values, stride, count) =>
    values.map((_, i) => {
      const place = Math.floor(i / stride) % count;
      let total = 0;
      for (let d = Math.max(-reach, -place); d <= Math.min(reach, count - 1 - place); d++) {
        total += (kernel[d + reach] / sum) * values[i + d * stride];
      }
      return total;
    });
  return along(along(image.slice(0, channels * height * width), width, height), 1, width);
}
