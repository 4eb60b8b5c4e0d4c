// Arrays as pictures: ink on paper, residuals in two colours, features in their hues, which are those of the figures
// (figures/style.py).
import { contextOf, make, styled } from "./dom.js";

/** @typedef {{ channels: number, height: number, width: number, photograph?: boolean }} Size */

/** A colour of the style sheet as [r, g, b] from 0 to 255. @param {string} name #rrggbb */
function rgb(name) {
  const text = styled(name);
  return [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
}

/**
 * A canvas as large as the picture; the style sheet enlarges it.
 * @param {Size} size
 * @param {string} label for those who do not see it
 */
export function pictureCanvas({ height, width }, label) {
  return make("canvas", { width, height, class: "picture", role: "img", "aria-label": label });
}

/**
 * Fill a canvas, pixel by pixel.
 * @param {HTMLCanvasElement} canvas
 * @param {number} height
 * @param {number} width
 * @param {(i: number, pixel: number[]) => void} paint writes [r, g, b] of pixel i
 */
function fill(canvas, height, width, paint) {
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  const context = contextOf(canvas);
  const image = context.createImageData(width, height);
  const pixel = [0, 0, 0];
  for (let i = 0; i < width * height; i++) {
    paint(i, pixel);
    image.data.set([...pixel, 255], 4 * i);
  }
  context.putImageData(image, 0, 0);
}

/** @param {number[]} from @param {number[]} to @param {number} share @param {number[]} out */
function mix(from, to, share, out) {
  const s = Math.min(1, Math.max(0, share));
  for (let c = 0; c < 3; c++) out[c] = from[c] + s * (to[c] - from[c]);
}

/**
 * An image: its own colours where it has three channels, otherwise ink on paper, or a photograph in grey.
 * @param {HTMLCanvasElement} canvas
 * @param {ArrayLike<number>} values [channels, height, width]
 * @param {Size} size
 * @param {number} [largest] the value shown as full ink
 */
export function drawImage(canvas, values, { channels, height, width, photograph }, largest = 1) {
  const [paper, ink] = photograph ? [[0, 0, 0], [255, 255, 255]] : [rgb("--paper"), rgb("--ink")];
  const area = height * width;
  fill(canvas, height, width, (i, pixel) => {
    if (channels === 3) for (let c = 0; c < 3; c++) pixel[c] = (255 * values[c * area + i]) / largest;
    else mix(paper, ink, Math.abs(values[i]) / largest, pixel);
  });
}

/**
 * A residual e = Rp - v: one colour where ink is missing, another where there is too much.
 * @param {HTMLCanvasElement} canvas
 * @param {ArrayLike<number>} e
 * @param {Size} size
 * @param {number} [largest] the value shown as full ink
 */
export function drawResidual(canvas, e, { channels, height, width }, largest = 1) {
  const [paper, missing, excess] = [rgb("--paper"), rgb("--missing"), rgb("--excess")];
  const area = height * width;
  fill(canvas, height, width, (i, pixel) => {
    let value = 0;
    for (let c = 0; c < channels; c++) value += e[c * area + i] / channels;
    mix(paper, value < 0 ? missing : excess, (1.5 * Math.abs(value)) / largest, pixel);
  });
}

/**
 * What several features draw, each in its hue; where they overlap the hues are mixed by their shares.
 * @param {HTMLCanvasElement} canvas
 * @param {{ colour: number[], pixels: ArrayLike<number>, weight?: number }[]} parts
 * @param {Size} size
 * @param {number} [largest]
 */
export function drawParts(canvas, parts, { channels, height, width }, largest = 1) {
  const paper = rgb("--paper");
  const area = height * width;
  const hue = [0, 0, 0];
  fill(canvas, height, width, (i, pixel) => {
    let total = 0;
    hue.fill(0);
    for (const { colour, pixels, weight = 1 } of parts) {
      let value = 0;
      for (let c = 0; c < channels; c++) value += (weight * Math.abs(pixels[c * area + i])) / channels;
      total += value;
      for (let c = 0; c < 3; c++) hue[c] += 255 * colour[c] * value;
    }
    if (total > 0) for (let c = 0; c < 3; c++) hue[c] /= total;
    mix(paper, hue, total / largest, pixel);
  });
}

/**
 * Cut [channels, h, w] out of an image at (top, left); beyond the border there is nothing.
 * @param {ArrayLike<number>} values
 * @param {Size} size
 * @param {number} top
 * @param {number} left
 * @param {number} h
 * @param {number} w
 */
export function cut(values, { channels, height, width }, top, left, h, w) {
  const out = new Float64Array(channels * h * w);
  for (let c = 0; c < channels; c++) {
    for (let y = Math.max(0, -top); y < h && top + y < height; y++) {
      for (let x = Math.max(0, -left); x < w && left + x < width; x++) {
        out[(c * h + y) * w + x] = values[(c * height + top + y) * width + left + x];
      }
    }
  }
  return out;
}

/** @param {ArrayLike<number>} values */
export function largestOf(values) {
  let largest = 0;
  for (let i = 0; i < values.length; i++) largest = Math.max(largest, Math.abs(values[i]));
  return largest;
}

/** @param {number} a @param {number} b @returns {number} */
const commonDivisor = (a, b) => (b === 0 ? a : commonDivisor(b, a % b));

/**
 * Colours [r, g, b] from 0 to 1, evenly spaced around the perceptual circle and dealt so that features with
 * neighbouring numbers have hues far apart; lightness changes from one hue to the next.
 * @param {number} features
 * @returns {number[][]}
 */
export function featureColours(features) {
  let stride = Math.max(1, roundHalfEven(0.38 * features));
  while (commonDivisor(stride, features) !== 1) stride++;
  return Array.from({ length: features }, (_, i) => {
    const place = (i * stride) % features;
    return mostSaturated([0.58, 0.72, 0.46][place % 3], (2 * Math.PI * place) / features);
  });
}

/** Round as Python does. @param {number} value */
function roundHalfEven(value) {
  const below = Math.floor(value);
  if (value - below !== 0.5) return Math.round(value);
  return below % 2 === 0 ? below : below + 1;
}

/** The largest chroma of this lightness and hue that a screen shows. @param {number} lightness @param {number} hue */
function mostSaturated(lightness, hue) {
  let shown = [lightness, lightness, lightness];
  for (let i = 0; i < 60; i++) {
    const colour = oklchToRgb(lightness, (0.17 * i) / 59, hue);
    if (colour.every((part) => part >= 0 && part <= 1)) shown = colour;
  }
  return shown;
}

/** Björn Ottosson's Oklab in polar form to sRGB. @param {number} lightness @param {number} chroma @param {number} hue */
function oklchToRgb(lightness, chroma, hue) {
  const [a, b] = [chroma * Math.cos(hue), chroma * Math.sin(hue)];
  const long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const short = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
    -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
    -0.0041960863 * long - 0.7034186147 * middle + 1.707614701 * short,
  ].map((linear) => (linear > 0.0031308 ? 1.055 * linear ** (1 / 2.4) - 0.055 : 12.92 * linear));
}

/** @param {number[]} colour @param {number} [alpha] */
export const css = (colour, alpha = 1) =>
  `rgb(${colour.map((part) => Math.round(255 * part)).join(" ")} / ${alpha})`;
