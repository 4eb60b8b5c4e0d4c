// The plane of the image as it is drawn: features in their hues, the grid of regions, an ellipse for each Gaussian.
import { contextOf, styled } from "./dom.js";
import { footprint, placeOf, planeOf } from "./geometry.js";
import { css, cut, drawImage, drawParts, largestOf, pictureCanvas } from "./pictures.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./session.js").Active} Active */

const WIDEST = 0.5; // of a region: a Gaussian that is wider is as good as flat

/**
 * Centre and radii of the ellipse of region j of layer k, in pixels of the image.
 * @param {Session} session
 * @param {number} k
 * @param {number} j
 */
export function ellipseOf(session, k, j) {
  const { regions } = session.network.layers[k - 1];
  const { scale, offset } = planeOf(session.network, k);
  const theta = session.latents.theta[k - 1];
  const row = Math.floor(j / regions.columns) % regions.rows;
  const column = j % regions.columns;
  const centre = (/** @type {number} */ place, /** @type {number} */ mu) =>
    (place * regions.stride + (regions.size - 1) / 2 + mu) * scale + offset;
  const radius = (/** @type {number} */ gamma) => Math.min(1 / Math.sqrt(gamma), regions.size * WIDEST) * scale;
  return {
    x: centre(column, theta.muX[j]),
    y: centre(row, theta.muY[j]),
    radiusX: radius(theta.gammaX[j]),
    radiusY: radius(theta.gammaY[j]),
    home: { x: centre(column, 0), y: centre(row, 0), half: (regions.size / 2) * scale },
  };
}

/** A radius that can still be seen and held. @param {number} radius @param {number} zoom */
export const shownRadius = (radius, zoom) => Math.max(radius, 4.5 / zoom);

/**
 * @param {CanvasRenderingContext2D} context in pixels of the image
 * @param {Session} session
 * @param {HTMLCanvasElement} scratch
 * @param {number | null} hovered
 * @param {number} zoom pixels of the screen for a pixel of the image
 * @param {number} scale how much larger the plane is drawn than when all of it is seen
 */
export function drawPlane(context, session, scratch, hovered, zoom, scale) {
  const { layer, selected, view } = session.state;
  const { height, width } = session.size;
  const focus = hovered ?? selected;
  context.fillStyle = styled("--plane");
  context.fillRect(-1e3, -1e3, 2e3, 2e3);
  if (view === "image") drawImage(scratch, session.image, session.size);
  else if (view === "tiles") drawParts(scratch, [], session.inkSize);
  else drawParts(scratch, session.parts(layer), session.inkSize, session.fullInk);
  context.imageSmoothingEnabled = false;
  context.globalAlpha = focus !== null && view === "colours" ? 0.35 : 1;
  context.drawImage(scratch, -0.5, -0.5, width, height);
  context.globalAlpha = 1;
  drawGrid(context, session, layer, zoom);
  const active = session.active(layer);
  if (view === "tiles") drawTiles(context, session, layer, active);
  else if (focus !== null) drawAlone(context, session, layer, focus, scratch);
  const largest = Math.abs(active[0]?.value ?? 1);
  if (selected !== null && !active.some(({ j }) => j === selected)) {
    const { map } = placeOf(session.network.layers[layer - 1].regions, selected);
    drawEllipse(context, session, layer, selected, map, 0, true, true, zoom);
  }
  for (const { j, map, value } of active.slice().reverse()) {
    drawEllipse(context, session, layer, j, map, Math.abs(value) / largest, j === selected, j === focus, zoom);
  }
  drawNumbers(context, session, layer, active, focus, zoom, scale);
}

/**
 * The numbers of the strongest features that fit, and of the one in focus: none covers another one. More fit, and weaker
 * ones have theirs, where the plane is larger.
 * @param {CanvasRenderingContext2D} context
 * @param {Session} session
 * @param {number} k
 * @param {Active[]} active the largest first
 * @param {number | null} focus
 * @param {number} zoom
 * @param {number} scale
 */
function drawNumbers(context, session, k, active, focus, zoom, scale) {
  context.font = `600 ${11 / zoom}px system-ui, sans-serif`;
  context.textAlign = "center";
  context.lineWidth = 3 / zoom;
  context.strokeStyle = styled("--halo");
  context.fillStyle = styled("--text");
  const least = (0.3 / scale) * Math.abs(active[0]?.value ?? 0);
  const strong = active.filter(({ value }) => k === session.top && Math.abs(value) >= least);
  /** @type {{ x: number, y: number, half: number }[]} */ const placed = [];
  for (const { j, map } of [...active.filter((one) => one.j === focus), ...strong]) {
    const e = ellipseOf(session, k, j);
    const half = context.measureText(String(map + 1)).width / 2 + 2 / zoom; // with the halo
    const at = { x: e.x, y: e.y - shownRadius(e.radiusY, zoom) - 3 / zoom, half };
    if (placed.some(({ x, y, half: other }) => Math.abs(x - at.x) < half + other && Math.abs(y - at.y) < 13 / zoom)) continue;
    placed.push(at);
    context.strokeText(String(map + 1), at.x, at.y);
    context.fillText(String(map + 1), at.x, at.y);
  }
}

/** @param {CanvasRenderingContext2D} context @param {Session} session @param {number} k @param {number} zoom */
function drawGrid(context, session, k, zoom) {
  const { regions } = session.network.layers[k - 1];
  const { scale, offset } = planeOf(session.network, k);
  context.strokeStyle = styled("--grid");
  context.lineWidth = 0.7 / zoom;
  context.beginPath();
  const start = -0.5 * scale + offset;
  const end = (/** @type {number} */ n) => ((n - 1) * regions.stride + regions.size - 0.5) * scale + offset;
  const [right, bottom] = [end(regions.columns), end(regions.rows)];
  for (let x = start; x <= right + 1e-6; x += regions.stride * scale) {
    context.moveTo(x, start);
    context.lineTo(x, bottom);
  }
  for (let y = start; y <= bottom + 1e-6; y += regions.stride * scale) {
    context.moveTo(start, y);
    context.lineTo(right, y);
  }
  context.stroke();
  context.strokeStyle = styled("--muted");
  context.lineWidth = 1 / zoom;
  context.strokeRect(-0.5, -0.5, session.size.width, session.size.height);
}

/**
 * The Gaussian of an active feature as an ellipse, filled the more the larger the feature is.
 * @param {CanvasRenderingContext2D} context
 * @param {Session} session
 * @param {number} k
 * @param {number} j
 * @param {number} map
 * @param {number} share of the largest feature
 * @param {boolean} selected
 * @param {boolean} focused
 * @param {number} zoom
 */
function drawEllipse(context, session, k, j, map, share, selected, focused, zoom) {
  const e = ellipseOf(session, k, j);
  const colour = session.colours[k - 1][map];
  const [rx, ry] = [shownRadius(e.radiusX, zoom), shownRadius(e.radiusY, zoom)];
  if (selected) {
    context.strokeStyle = css(colour);
    context.lineWidth = 1.5 / zoom;
    context.setLineDash([4 / zoom, 3 / zoom]);
    context.strokeRect(e.home.x - e.home.half, e.home.y - e.home.half, 2 * e.home.half, 2 * e.home.half);
    context.setLineDash([]);
  }
  context.beginPath();
  context.ellipse(e.x, e.y, rx, ry, 0, 0, 2 * Math.PI);
  context.fillStyle = css(colour, 0.12 + 0.5 * share);
  context.fill();
  context.lineWidth = (selected ? 4.5 : focused ? 4 : 3) / zoom;
  context.strokeStyle = styled("--halo");
  context.stroke();
  context.lineWidth = (selected ? 2.6 : focused ? 2.2 : 1.2) / zoom;
  context.strokeStyle = css(colour, selected || focused ? 1 : 0.35 + 0.65 * share);
  context.stroke();
  context.beginPath();
  context.arc(e.x, e.y, 1.8 / zoom, 0, 2 * Math.PI);
  context.fillStyle = css(colour);
  context.fill();
  if (selected) drawHandles(context, e.x, e.y, rx, ry, colour, zoom);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} x
 * @param {number} y
 * @param {number} rx
 * @param {number} ry
 * @param {number[]} colour
 * @param {number} zoom
 */
function drawHandles(context, x, y, rx, ry, colour, zoom) {
  for (const [hx, hy] of [[x - rx, y], [x + rx, y], [x, y - ry], [x, y + ry]]) {
    context.beginPath();
    context.arc(hx, hy, 3.5 / zoom, 0, 2 * Math.PI);
    context.fillStyle = styled("--halo");
    context.fill();
    context.lineWidth = 1.6 / zoom;
    context.strokeStyle = css(colour);
    context.stroke();
  }
}

/**
 * What one feature draws, over the others.
 * @param {CanvasRenderingContext2D} context
 * @param {Session} session
 * @param {number} k
 * @param {number} j
 * @param {HTMLCanvasElement} scratch
 */
function drawAlone(context, session, k, j, scratch) {
  const { regions } = session.network.layers[k - 1];
  const colour = session.colours[k - 1][Math.floor(j / (regions.rows * regions.columns))];
  const pixels = session.drawnAlone(k, j);
  const image = contextOf(scratch).createImageData(scratch.width, scratch.height);
  const area = scratch.width * scratch.height;
  for (let i = 0; i < area; i++) {
    let value = 0;
    for (let c = 0; c < session.inkSize.channels; c++) value += Math.abs(pixels[c * area + i]) / session.inkSize.channels;
    image.data.set([...colour.map((part) => 255 * part), 255 * Math.min(1, 1.6 * value)], 4 * i);
  }
  contextOf(scratch).putImageData(image, 0, 0);
  context.drawImage(scratch, -0.5, -0.5, session.size.width, session.size.height);
}

/**
 * A tile for every active feature in its region: what it draws, cut to its footprint. Several share the region.
 * @param {CanvasRenderingContext2D} context
 * @param {Session} session
 * @param {number} k
 * @param {Active[]} active
 */
function drawTiles(context, session, k, active) {
  /** @type {Map<string, Active[]>} */ const cells = new Map();
  for (const one of active) {
    const key = `${one.row} ${one.column}`;
    cells.set(key, [...(cells.get(key) ?? []), one]);
  }
  for (const group of cells.values()) {
    const side = Math.ceil(Math.sqrt(group.length));
    group.forEach(({ j, map, row, column }, n) => {
      const { home } = ellipseOf(session, k, j);
      const edge = (2 * home.half) / side;
      const tile = tileOf(session, k, j, row, column, session.colours[k - 1][map]);
      const [x, y] = [home.x - home.half + (n % side) * edge, home.y - home.half + Math.floor(n / side) * edge];
      context.drawImage(tile, x, y, edge, edge);
    });
  }
}

/**
 * What an active feature draws, cut to its footprint and in its hue.
 * @param {Session} session
 * @param {number} k
 * @param {number} j
 * @param {number} row
 * @param {number} column
 * @param {number[]} colour
 */
export function tileOf(session, k, j, row, column, colour) {
  const [y, x] = [footprint(session.network, k, row), footprint(session.network, k, column)];
  const [h, w] = [y.beyond - y.first, x.beyond - x.first];
  const pixels = cut(session.drawnAlone(k, j), session.inkSize, y.first, x.first, h, w);
  const size = { channels: session.inkSize.channels, height: h, width: w };
  const tile = pictureCanvas(size, "");
  drawParts(tile, [{ colour, pixels }], size, largestOf(pixels) || 1);
  return tile;
}
