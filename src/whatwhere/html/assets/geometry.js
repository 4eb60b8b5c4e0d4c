// Where things are on the image plane: from places on maps to pixels.

/** @typedef {import("./engine.js").Network} Network */

/**
 * pixel = scale · z + offset for the unpooled map z of layer k (from 1).
 * @param {Network} network
 * @param {number} k
 */
export function planeOf(network, k) {
  let scale = 1;
  let offset = 0;
  network.layers.slice(0, k).forEach(({ filterSize, regions }, i) => {
    offset += (filterSize - 1) / 2;
    if (i + 1 < k) {
      scale /= regions.stride;
      offset = (offset - (regions.size - 1) / 2) / regions.stride;
    }
  });
  return { scale: 1 / scale, offset: -offset / scale };
}

/**
 * Row and column of region j on its map, and the map.
 * @param {import("./pooling.js").Regions} r
 * @param {number} j
 */
export function placeOf(r, j) {
  const within = j % (r.rows * r.columns);
  return { map: Math.floor(j / (r.rows * r.columns)), row: Math.floor(within / r.columns), column: within % r.columns };
}

/**
 * The pixels [first, beyond) that the element at `place` of p_k can reach along an axis.
 * @param {Network} network
 * @param {number} k
 * @param {number} place
 */
export function footprint(network, k, place) {
  let [first, beyond] = [place, place + 1];
  for (const { filterSize, regions } of network.layers.slice(0, k).reverse()) {
    first = first * regions.stride - (filterSize - 1);
    beyond = (beyond - 1) * regions.stride + regions.size;
  }
  return { first, beyond };
}

/**
 * The stretch of the image plane that the regions of the top layer cover, in pixels.
 * @param {Network} network
 */
export function extentOf(network) {
  const top = network.layers.length;
  const { scale, offset } = planeOf(network, top);
  const { rows, columns, stride, size } = network.layers[top - 1].regions;
  const end = (/** @type {number} */ count) => ((count - 1) * stride + size - 0.5) * scale + offset;
  return { start: -0.5 * scale + offset, endY: end(rows), endX: end(columns) };
}
