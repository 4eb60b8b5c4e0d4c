// Tiles of the map: none covers another by more than half, and every picture is in one.
import assert from "node:assert/strict";
import { test } from "node:test";
import { classOfTile, covered, tilesOf } from "../../src/whatwhere/html/assets/label_tiles.js";

/** Numbers from 0 to 1, always the same. @param {number} count */
function numbers(count) {
  let seed = 1;
  return Float64Array.from({ length: count }, () => (seed = (seed * 16807) % 2147483647) / 2147483647);
}

test("no tile covers another by more than half, and every picture is in one", () => {
  const count = 20000;
  const side = 28;
  const [x, y] = [numbers(count).map((one) => one * 700), numbers(2 * count).slice(count).map((one) => one * 500)];
  x[5] = NaN;
  const start = performance.now();
  const tiles = tilesOf(x, y, side, x.keys());
  assert.ok(performance.now() - start < 2000, "20,000 pictures");
  assert.ok(tiles.length < 2000);
  const inTiles = tiles.flatMap((tile) => tile.rows).sort((a, b) => a - b);
  assert.deepEqual(inTiles, [...x.keys()].filter((row) => row !== 5));
  for (const [n, a] of tiles.entries()) {
    for (const b of tiles.slice(n + 1)) assert.ok(covered((x[a.row] - x[b.row]) / side, (y[a.row] - y[b.row]) / side) <= 0.5);
  }
});

test("what comes first is drawn, and pictures apart are alone", () => {
  const [x, y] = [Float64Array.from([0, 3, 100]), Float64Array.from([0, 3, 0])];
  assert.deepEqual(tilesOf(x, y, 20, [1, 0, 2]), [{ row: 1, rows: [1, 0] }, { row: 2, rows: [2] }]);
  assert.equal(tilesOf(x, y, 2, [0, 1, 2]).length, 3);
});

test("a tile has the class of most of its pictures", () => {
  assert.deepEqual(classOfTile([0, 1, 2], [4, 2, 2]), { best: 2, isOne: false });
  assert.deepEqual(classOfTile([0, 1], [-1, -1]), { best: -1, isOne: true });
});
