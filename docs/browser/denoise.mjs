// Remove white noise from the pixels of a canvas with the denoiser that `save_onnx` wrote.
// This file runs in a worker, where it answers messages, and in Node, where it is tested.

// brightness, red against blue, green against both; as in planes.py
const OPPONENT = [[1 / 3, 1 / 3, 1 / 3], [1 / 2, 0, -1 / 2], [1 / 4, -1 / 2, 1 / 4]];
const INVERSE = [[1, 1, 2 / 3], [1, 0, -4 / 3], [1, -1, 2 / 3]];
const OFFSET = [0, 0.5, 0.5];
const PLANE_NOISE = OPPONENT.map((row) => Math.hypot(...row));
// the range from 0 to 1 has at least so many standard deviations of the noise
const LEAST_RANGE = 8;
// blocks of 8 × 8 pixels, of which those with the weakest differences are compared with noise: the
// 30 % quantile of the mean square of 16 standard normals is 0.79
const BLOCK = 8;
const QUANTILE = 0.3;
const NOISE_AT_QUANTILE = 0.7906;

// Red, green and blue from 0 to 1, [3][pixels], of bytes with transparency; grey has one plane.
export function channels(bytes) {
  const count = bytes.length / 4;
  const planes = [0, 1, 2].map((k) => Float32Array.from({ length: count }, (_, i) => bytes[4 * i + k] / 255));
  const isGrey = planes[0].every((value, i) => value === planes[1][i] && value === planes[2][i]);
  return isGrey ? [planes[0]] : planes;
}

export function toOpponent(planes) {
  return OPPONENT.map((row, o) =>
    planes[0].map((_, i) => OFFSET[o] + row[0] * planes[0][i] + row[1] * planes[1][i] + row[2] * planes[2][i]));
}

export function fromOpponent(planes) {
  const at = (o, i) => planes[o][i] - OFFSET[o];
  return INVERSE.map((row) =>
    planes[0].map((_, i) => row[0] * at(0, i) + row[1] * at(1, i) + row[2] * at(2, i)));
}

// The standard deviation of white noise, from the flattest blocks; texture only adds to it.
export function estimateSigma(plane, width, height) {
  const energies = [];
  for (let top = 0; top + BLOCK <= height; top += BLOCK / 2) {
    for (let left = 0; left + BLOCK <= width; left += BLOCK / 2) {
      let energy = 0;
      for (let y = top; y < top + BLOCK; y += 2) {
        for (let x = left; x < left + BLOCK; x += 2) {
          const i = y * width + x;
          energy += ((plane[i] - plane[i + 1] - plane[i + width] + plane[i + width + 1]) / 2) ** 2;
        }
      }
      energies.push(energy / (BLOCK / 2) ** 2);
    }
  }
  // blocks whose values are all alike were cut off
  const seen = energies.filter((energy) => energy > 0).sort((a, b) => a - b);
  if (seen.length < 16) return 0;
  return Math.sqrt(seen[Math.floor(QUANTILE * seen.length)] / NOISE_AT_QUANTILE);
}

// The least and the largest mean of 3 × 3 pixels, at least LEAST_RANGE deviations apart.
export function valueRange(plane, width, height, sigma) {
  const large = Math.min(width, height) >= 3;
  let low = Infinity;
  let high = -Infinity;
  const reach = large ? 1 : 0;
  for (let y = reach; y < height - reach; y += 1) {
    for (let x = reach; x < width - reach; x += 1) {
      let sum = 0;
      for (let dy = -reach; dy <= reach; dy += 1) {
        for (let dx = -reach; dx <= reach; dx += 1) sum += plane[(y + dy) * width + x + dx];
      }
      const mean = sum / (2 * reach + 1) ** 2;
      low = Math.min(low, mean);
      high = Math.max(high, mean);
    }
  }
  const half = Math.max(high - low, LEAST_RANGE * sigma) / 2;
  const middle = (low + high) / 2;
  return half > 0 ? [middle - half, middle + half] : [low, low + 1];
}

// A plane without its noise; `run(picture, height, width, sigma)` is the denoiser.
async function restorePlane(run, plane, width, height, sigma) {
  const [black, white] = valueRange(plane, width, height, sigma);
  const unit = plane.map((value) => (value - black) / (white - black));
  const clean = await run(unit, height, width, sigma / (white - black));
  return clean.map((value) => black + (white - black) * value);
}

// Bytes [4 · pixels] of a canvas without noise of standard deviation sigma, where white is 1.
export async function denoise(run, bytes, width, height, sigma, progress = () => {}) {
  const planes = channels(bytes);
  const parts = planes.length === 3 ? toOpponent(planes) : planes;
  const restored = [];
  for (const [number, plane] of parts.entries()) {
    const factor = parts.length === 3 ? PLANE_NOISE[number] : 1;
    restored.push(await restorePlane(run, plane, width, height, factor * sigma));
    progress((number + 1) / parts.length);
  }
  const clean = restored.length === 3 ? fromOpponent(restored) : [restored[0], restored[0], restored[0]];
  const result = new Uint8ClampedArray(bytes);
  for (let i = 0; i < width * height; i += 1) {
    for (let k = 0; k < 3; k += 1) result[4 * i + k] = 255 * clean[k][i]; // rounds and limits
  }
  return result;
}

// The estimate of a picture: the plane with the least noise decides, as texture adds to the others.
export function estimate(bytes, width, height) {
  const planes = channels(bytes);
  if (planes.length === 1) return estimateSigma(planes[0], width, height);
  return Math.min(...toOpponent(planes).map((plane, k) => estimateSigma(plane, width, height) / PLANE_NOISE[k]));
}

async function openDenoiser() {
  const ort = await import("./ort.wasm.min.mjs");
  ort.env.wasm.numThreads = 1; // more need headers that not every server sends
  const session = await ort.InferenceSession.create("denoiser.onnx");
  return async (picture, height, width, sigma) => {
    const inputs = {
      picture: new ort.Tensor("float32", picture, [height, width]),
      sigma: new ort.Tensor("float32", Float32Array.of(sigma), [1]),
    };
    return (await session.run(inputs)).clean.data;
  };
}

if (typeof WorkerGlobalScope !== "undefined") {
  let opened;
  self.onmessage = async ({ data: { number, bytes, width, height, sigma } }) => {
    try {
      opened ??= openDenoiser();
      const level = sigma ?? estimate(bytes, width, height);
      self.postMessage({ number, sigma: level });
      const run = await opened;
      const report = (share) => self.postMessage({ number, share });
      self.postMessage({ number, clean: await denoise(run, bytes, width, height, level, report) });
    } catch (error) {
      opened = undefined;
      self.postMessage({ number, error: String(error?.message ?? error) });
    }
  };
}
