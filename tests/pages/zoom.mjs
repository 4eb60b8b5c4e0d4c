// The window of the map: what is at the pointer stays there, and the map is never left.
import assert from "node:assert/strict";
import { test } from "node:test";
import { MapWindow } from "../../src/whatwhere/html/assets/label_zoom.js";

const place = (/** @type {MapWindow} */ window, /** @type {{x: number, y: number}} */ at) => ({
  x: window.x + (at.x - 0.5) / window.zoom,
  y: window.y + (at.y - 0.5) / window.zoom,
});

test("what is at the pointer stays there", () => {
  const window = new MapWindow();
  window.zoomAt(4, { x: 0.5, y: 0.5 });
  const at = { x: 0.3, y: 0.6 };
  const before = place(window, at);
  window.zoomAt(2, at);
  const after = place(window, at);
  assert.ok(Math.hypot(after.x - before.x, after.y - before.y) < 1e-9);
  assert.ok(Math.abs(window.seen(before.x, window.x) - at.x) < 1e-9);
});

test("the map is never left, and fit shows all of it", () => {
  const window = new MapWindow();
  window.zoomAt(0.1, { x: 0, y: 0 });
  assert.equal(window.zoom, 1);
  assert.ok(window.isWhole);
  window.zoomAt(1e9, { x: 1, y: 1 });
  window.pan(-50, -50);
  for (const middle of [window.x, window.y]) assert.ok(Math.abs(middle + 0.5 / window.zoom - 1) < 1e-9);
  window.fit();
  assert.deepEqual([window.zoom, window.x, window.y], [1, 0.5, 0.5]);
});

test("pictures grow with the zoom", () => {
  const window = new MapWindow();
  window.zoomAt(9, { x: 0.5, y: 0.5 });
  assert.equal(window.growth, 3);
});
