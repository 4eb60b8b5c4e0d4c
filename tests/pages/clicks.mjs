// A second click at once is no second label.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Clicks } from "../../src/whatwhere/html/assets/label_clicks.js";

const click = (/** @type {number} */ timeStamp) => ({ detail: 1, timeStamp });

test("a second click within 400 ms is no second label", () => {
  const clicks = new Clicks();
  assert.deepEqual([100, 300, 499, 500, 950].map((time) => clicks.isAlone(click(time))), [true, false, false, true, true]);
});

test("keys may follow each other as fast as they like", () => {
  const clicks = new Clicks();
  assert.ok([1, 2, 3].every((timeStamp) => clicks.isAlone({ detail: 0, timeStamp })));
});
