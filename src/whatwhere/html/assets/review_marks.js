// A person's marks of pictures, kept in the browser while the page is open or opened again, and saved as a table.

export const MARKS = ["defect", "false alarm", "not sure"];

/** A field of a CSV table. @param {string} text */
const field = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

export class Marks {
  /** @param {string} key under which the browser keeps them @param {Set<string>} names of the pictures */
  constructor(key, names) {
    this.key = key;
    /** @type {Map<string, string>} */
    this.given = new Map();
    /** @type {[name: string, before: string][]} */
    this.history = [];
    try {
      for (const [name, mark] of JSON.parse(localStorage.getItem(key) ?? "[]"))
        if (names.has(name) && MARKS.includes(mark)) this.given.set(name, mark);
    } catch {
      this.given.clear(); // a browser that keeps nothing, or something else under this key
    }
  }

  /** @param {string} name @param {string} mark "" takes it away */
  give(name, mark) {
    this.history.push([name, this.given.get(name) ?? ""]);
    this.set(name, mark);
  }

  /** Take the last mark back. @returns {string | null} the picture that it was on */
  undo() {
    const last = this.history.pop();
    if (!last) return null;
    this.set(...last);
    return last[0];
  }

  /** @param {string} name @param {string} mark */
  set(name, mark) {
    if (mark) this.given.set(name, mark);
    else this.given.delete(name);
    try {
      localStorage.setItem(this.key, JSON.stringify([...this.given]));
    } catch {
      // the table can be saved all the same
    }
  }

  /** @param {string} mark */
  count(mark) {
    let count = 0;
    for (const given of this.given.values()) if (given === mark) count += 1;
    return count;
  }

  /** The table that `whatwhere anomaly fit --marks` reads. @param {string} folder of the pictures */
  table(folder) {
    const lines = [...this.given].map(([name, mark]) => [name, mark, folder].map(field).join(","));
    return ["picture,mark,folder", ...lines, ""].join("\n");
  }
}
