// Images of another kind than the examples.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Kind, substanceOf } from "../../src/whatwhere/html/assets/kind.js";

const size = { channels: 1, height: 28, width: 28 };

/** An image of a function of the place. @param {(x: number, y: number) => number} shade */
const image = (shade) => Float64Array.from({ length: 784 }, (_, i) => Math.min(1, Math.max(0, shade(i % 28, Math.floor(i / 28)))));

/** A stroke with soft edges. @param {number} place @param {number} slope */
const stroke = (place, slope) => image((x, y) => (y < 5 || y > 22 ? 0 : 2 - Math.abs(x - place - slope * (y - 14)) / Math.hypot(1, slope)));

const strokes = Array.from({ length: 120 }, (_, n) => stroke(8 + ((n * 0.37) % 12), ((n * 0.61) % 1.4) - 0.7));

test("a stroke is of the kind of strokes, and grey blobs, gradients and noise are not", () => {
  const kind = new Kind(strokes, size);
  for (const [place, slope] of [[10.3, 0.1], [17.5, -0.35], [12, 0.43]]) assert.ok(!kind.isOther(stroke(place, slope)));
  const others = {
    blob: image((x, y) => 0.5 * Math.exp(-((x - 14) ** 2 + (y - 14) ** 2) / 50)),
    gradient: image((x) => x / 28),
    noise: image((x, y) => (Math.sin(12.9898 * x + 78.233 * y) * 43758.5453) % 1),
  };
  for (const [name, pixels] of Object.entries(others)) assert.ok(kind.isOther(pixels), name);
});

test("an image without anything, and too few examples, are no ground for a warning", () => {
  assert.equal(substanceOf(image(() => 0.3), size), null);
  assert.ok(!new Kind(strokes, size).isOther(image(() => 0)));
  assert.ok(!new Kind(strokes.slice(0, 5), size).isOther(image((x) => x / 28)));
});
