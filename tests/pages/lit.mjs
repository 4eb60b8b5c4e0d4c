// Pictures that light up after a label: arrows go along them, take one out and put it back.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Lit } from "../../src/whatwhere/html/assets/label_lit.js";

test("arrows take one out and put it back", () => {
  const lit = new Lit("tulip", [7, 3, 9], 0);
  assert.ok(lit.follow("ArrowDown"));
  assert.deepEqual(lit.meant, [7, 3, 9], "the first press only goes to them");
  for (const key of ["ArrowRight", "ArrowDown"]) assert.ok(lit.follow(key));
  assert.deepEqual(lit.meant, [7, 9]);
  for (const key of ["ArrowRight", "ArrowRight", "ArrowDown"]) lit.follow(key);
  assert.deepEqual(lit.meant, [7], "the last one is the end");
  lit.follow("ArrowUp");
  assert.deepEqual(lit.meant, [7, 9]);
  assert.ok(!lit.follow("Home"));
});

test("a click takes a picture out, another puts it back, and others do nothing", () => {
  const lit = new Lit("tulip", [7, 3], 0);
  lit.toggle(3);
  lit.toggle(5);
  assert.deepEqual(lit.meant, [7]);
  lit.toggle(3);
  assert.deepEqual(lit.meant, [7, 3]);
});

test("an Enter that comes twice confirms nothing", () => {
  const lit = new Lit("tulip", [7], 1000);
  assert.ok(!lit.isSeen(1399));
  assert.ok(lit.isSeen(1400));
});
