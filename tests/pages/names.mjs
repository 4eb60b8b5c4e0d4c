// Names of classes that are nearly the same.
import assert from "node:assert/strict";
import { test } from "node:test";
import { edits, marksOf, nearDouble } from "../../src/whatwhere/html/assets/label_names.js";

test("edits are counted", () => {
  for (const [a, b, count] of [["", "", 0], ["tulip", "tulip", 0], ["tulip", "tuilp", 1], ["tulip", "tulips", 1], ["abc", "", 3], ["kitten", "sitting", 3]]) {
    assert.equal(edits(/** @type {string} */ (a), /** @type {string} */ (b)), count, `${a} ${b}`);
    assert.equal(edits(/** @type {string} */ (b), /** @type {string} */ (a)), count);
  }
});

test("a near double is asked about, and nothing else", () => {
  const classes = ["tulip", "Rose", "class 1", "sunflower"];
  assert.equal(nearDouble("tuilp", classes), "tulip");
  assert.equal(nearDouble("tulips", classes), "tulip");
  assert.equal(nearDouble("rose", classes), "Rose");
  assert.equal(nearDouble("sunflwoers", classes), "sunflower");
  for (const name of ["tulip", "class 2", "nose", "daisy", "dandelion", ""]) assert.equal(nearDouble(name, classes), null, name);
});

test("marks of names differ where letters allow it", () => {
  const marks = (/** @type {string[]} */ ...names) => [...marksOf(names).values()];
  assert.deepEqual(marks("Peach", "Pepper Yellow", "Pear", "Pearl"), ["Pe", "PY", "Pr", "Pl"]);
  assert.deepEqual(marks("class 10", "class 11", "class 12"), ["cl", "c1", "c2"]);
  assert.deepEqual(marks("Äpfel", "Äpfel rot", "日本", "🍎🍏x"), ["Äp", "Är", "日本", "🍎🍏"]);
  assert.deepEqual(marks("a", "aa"), ["a", "aa"]);
});
