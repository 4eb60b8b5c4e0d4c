// A hue for each feature: the same as in the figures (figures/style.py).

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
