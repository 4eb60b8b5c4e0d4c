// Pictures on the map that would cover each other by more than half are one tile with a number.

/** @typedef {{ row: number, rows: number[] }} Tile the picture that is drawn, and all that it stands for */

/** The share of a square that another of the same side covers. @param {number} dx in sides @param {number} dy */
export const covered = (dx, dy) => Math.max(0, 1 - Math.abs(dx)) * Math.max(0, 1 - Math.abs(dy));

/**
 * Join pictures into tiles of which none covers another by more than half.
 * @param {Float64Array} x middles of the pictures by row, in pixels; NaN for those without a place
 * @param {Float64Array} y
 * @param {number} side of a picture in pixels
 * @param {Iterable<number>} order rows; those that come first are drawn, those that they would cover join them
 * @returns {Tile[]}
 */
export function tilesOf(x, y, side, order) {
  /** @type {Tile[]} */ const tiles = [];
  /** @type {Map<number, Tile[]>} */ const squares = new Map(); // tiles by the square of the map that they begin in
  const key = (/** @type {number} */ column, /** @type {number} */ line) => column * 65536 + line;
  for (const row of order) {
    if (Number.isNaN(x[row])) continue;
    const column = Math.floor(x[row] / side);
    const line = Math.floor(y[row] / side);
    const tile = mostCovering(row);
    if (tile) {
      tile.rows.push(row);
      continue;
    }
    const made = { row, rows: [row] };
    tiles.push(made);
    const square = squares.get(key(column, line));
    if (square) square.push(made);
    else squares.set(key(column, line), [made]);
  }
  return tiles;

  /** The tile that covers a picture most, by more than half. @param {number} row @returns {Tile | null} */
  function mostCovering(row) {
    const column = Math.floor(x[row] / side);
    const line = Math.floor(y[row] / side);
    let best = null;
    let most = 0.5;
    for (let i = column - 1; i <= column + 1; i++) {
      for (let j = line - 1; j <= line + 1; j++) {
        for (const tile of squares.get(key(i, j)) ?? []) {
          const share = covered((x[tile.row] - x[row]) / side, (y[tile.row] - y[row]) / side);
          if (share <= most) continue;
          best = tile;
          most = share;
        }
      }
    }
    return best;
  }
}

/**
 * The class that most pictures of a tile have, -1 for none, and whether all have it.
 * @param {number[]} rows
 * @param {number[]} best class by row
 */
export function classOfTile(rows, best) {
  if (rows.length === 1) return { best: best[rows[0]], isOne: true };
  /** @type {Map<number, number>} */ const counts = new Map();
  for (const row of rows) counts.set(best[row], (counts.get(best[row]) ?? 0) + 1);
  const [most] = [...counts].sort((a, b) => b[1] - a[1])[0];
  return { best: most, isOne: counts.size === 1 };
}
