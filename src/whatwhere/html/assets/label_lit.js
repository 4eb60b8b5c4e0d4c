// Pictures that light up because they are most like the one that was labelled last; each can be taken out.

const LOOK = 400; // milliseconds that they are seen before Enter confirms them: the Enter of the name may come twice

/** Pictures that may have the same class. */
export class Lit {
  /** @param {string} name of the class @param {number[]} rows the most similar first @param {number} since milliseconds */
  constructor(name, rows, since) {
    this.name = name;
    this.rows = rows;
    this.since = since;
    /** @type {Set<number>} */ this.out = new Set(); // rows that are not meant
    this.at = -1; // the place of the row that an arrow key reached
  }

  /** The rows that get the class. */
  get meant() {
    return this.rows.filter((row) => !this.out.has(row));
  }

  /** Whether they were seen long enough to be confirmed by a key. @param {number} now milliseconds */
  isSeen(now) {
    return now - this.since >= LOOK;
  }

  /** Take a row out, or put it back. @param {number} row */
  toggle(row) {
    if (!this.out.delete(row) && this.rows.includes(row)) this.out.add(row);
  }

  /**
   * Follow an arrow key: left and right go along the rows, down takes one out, up puts it back.
   * @param {string} key
   * @returns {boolean} whether the key was meant for them
   */
  follow(key) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
    if (step !== undefined) {
      this.at = Math.min(Math.max(this.at + step, 0), this.rows.length - 1);
      return true;
    }
    if (key !== "ArrowDown" && key !== "ArrowUp") return false;
    if (this.at < 0) this.at = 0; // the first press goes to them
    else if (key === "ArrowDown") this.out.add(this.rows[this.at]);
    else this.out.delete(this.rows[this.at]);
    return true;
  }
}
