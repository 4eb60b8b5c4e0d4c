// Clicks that label: the second of two that follow each other at once is a double click, and no second label.

/** Tells the first click from one that follows at once. */
export class Clicks {
  /** @param {number} pause milliseconds within which a click belongs to the one before */
  constructor(pause = 400) {
    this.pause = pause;
    this.last = -Infinity;
  }

  /** Whether a click stands alone; keys, which have no number of clicks, always do. @param {{ detail: number, timeStamp: number }} event */
  isAlone({ detail, timeStamp }) {
    if (detail === 0) return true;
    const isAlone = timeStamp - this.last >= this.pause;
    if (isAlone) this.last = timeStamp;
    return isAlone;
  }
}
