// How the map is seen: which part of it, and how large. Places are from 0 to 1; the window of the map shows some of them.

/** @typedef {{ x: number, y: number }} Point */

const MOST_ZOOM = 40; // times

/** A part of a map: its middle, and how many times larger than the whole map it is shown. */
export class MapWindow {
  constructor() {
    this.zoom = 1;
    this.x = 0.5;
    this.y = 0.5;
  }

  /** Show the whole map. */
  fit() {
    this.zoom = 1;
    this.x = 0.5;
    this.y = 0.5;
  }

  /** Whether the whole map is shown. */
  get isWhole() {
    return this.zoom === 1;
  }

  /** Where a place is seen, from 0 to 1 across the window. @param {number} place @param {number} middle */
  seen(place, middle) {
    return 0.5 + (place - middle) * this.zoom;
  }

  /** How much larger pictures are than on the whole map: they grow with the zoom, but slower. */
  get growth() {
    return Math.sqrt(this.zoom);
  }

  /**
   * Zoom so that what is at a point of the window stays there.
   * @param {number} factor
   * @param {Point} at from 0 to 1 across the window
   */
  zoomAt(factor, at) {
    const zoom = Math.min(MOST_ZOOM, Math.max(1, this.zoom * factor));
    const x = this.x + (at.x - 0.5) / this.zoom;
    const y = this.y + (at.y - 0.5) / this.zoom;
    this.zoom = zoom;
    this.x = x - (at.x - 0.5) / zoom;
    this.y = y - (at.y - 0.5) / zoom;
    this.#keepInside();
  }

  /** Move the map by a share of the window. @param {number} x @param {number} y */
  pan(x, y) {
    this.x -= x / this.zoom;
    this.y -= y / this.zoom;
    this.#keepInside();
  }

  /** Show a place in the middle. @param {Point} place */
  centre({ x, y }) {
    this.x = x;
    this.y = y;
    this.#keepInside();
  }

  #keepInside() {
    const half = 0.5 / this.zoom;
    this.x = Math.min(1 - half, Math.max(half, this.x));
    this.y = Math.min(1 - half, Math.max(half, this.y));
  }
}
