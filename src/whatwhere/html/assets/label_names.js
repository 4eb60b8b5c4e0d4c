// Names of classes: marks that stand for them, and names that are nearly the same.

/** Edits (a letter more, less or another, two letters swapped) between two words. @param {string} a @param {string} b */
export function edits(a, b) {
  let twoBefore = /** @type {number[]} */ ([]);
  let before = Array.from({ length: b.length + 1 }, (_, n) => n);
  for (let i = 1; i <= a.length; i++) {
    const now = [i];
    for (let j = 1; j <= b.length; j++) {
      const other = before[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1);
      let least = Math.min(before[j] + 1, now[j - 1] + 1, other);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) least = Math.min(least, twoBefore[j - 2] + 1);
      now.push(least);
    }
    [twoBefore, before] = [before, now];
  }
  return before[b.length];
}

/**
 * The class that a new name is probably meant to be, or null. Names that differ in digits alone are different on purpose.
 * @param {string} name
 * @param {string[]} classes
 */
export function nearDouble(name, classes) {
  if (classes.includes(name)) return null;
  const plain = (/** @type {string} */ text) => text.toLowerCase().normalize("NFC");
  const same = classes.find((one) => plain(one) === plain(name));
  if (same !== undefined) return same;
  if (name.length < 5) return null;
  const letters = (/** @type {string} */ text) => plain(text).replace(/\p{N}/gu, "");
  const most = name.length < 8 ? 1 : 2;
  const near = classes.filter((one) => one.length >= 4 && letters(one) !== letters(name) && edits(plain(one), plain(name)) <= most);
  return near.length === 1 ? near[0] : null;
}

/**
 * Marks of two letters for names, three where two are taken: how a name begins, the initials of its words, or its first
 * and last letter. Two names have the same mark only if all of these are taken.
 * @param {string[]} names
 */
export function marksOf(names) {
  /** @type {Map<string, string>} */
  const marks = new Map();
  const taken = new Set();
  for (const name of names) {
    const letters = [...name];
    const [first, second] = name.split(/\s+/).filter((word) => word !== "").map((word) => [...word][0]);
    const begins = letters.slice(0, 2).join("");
    const ways = [begins, `${first}${second ?? ""}`, `${letters[0]}${letters[letters.length - 1]}`, letters.slice(0, 3).join("")];
    const own = letters.length < 2 ? name : (ways.find((way) => [...way].length > 1 && !taken.has(way)) ?? begins);
    taken.add(own);
    marks.set(name, own);
  }
  return marks;
}
