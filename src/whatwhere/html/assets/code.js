// Panel "Code": the plane of the image with every active feature at its place, and the Gaussian of each to drag.
import { byId, contextOf, pointerOn } from "./dom.js";
import { extentOf, planeOf } from "./geometry.js";
import { pictureCanvas } from "./pictures.js";
import { drawPlane, ellipseOf, shownRadius } from "./plane.js";

/** @typedef {import("./session.js").Session} Session */

const LARGEST_SCALE = 8; // of the plane

/** @param {Session} session */
export function codePanel(session) {
  const canvas = byId("code", HTMLCanvasElement);
  const extent = extentOf(session.network);
  const [spanX, spanY] = [extent.endX - extent.start, extent.endY - extent.start];
  canvas.style.aspectRatio = `${spanX} / ${spanY}`;
  const scratch = pictureCanvas(session.size, "");
  /** @type {{ kind: "centre" | "rim", j: number, axis: "x" | "y" | "both" } | null} */ let drag = null;
  /** @type {number | null} */ let hovered = null;
  let adding = false;

  const plane = { scale: 1, x: extent.start, y: extent.start }; // what of the plane is seen: its corner, how large
  const zoom = () => (plane.scale * (canvas.clientWidth || 480)) / spanX;
  /** @param {MouseEvent} event */
  const at = (event) => {
    const { x, y } = pointerOn(event, canvas);
    return { x: plane.x + (x * spanX) / plane.scale, y: plane.y + (y * spanY) / plane.scale };
  };
  /** Put a corner where it shows nothing beyond the plane. @param {number} x @param {number} y */
  const moveTo = (x, y) => {
    plane.x = Math.min(extent.start + spanX * (1 - 1 / plane.scale), Math.max(extent.start, x));
    plane.y = Math.min(extent.start + spanY * (1 - 1 / plane.scale), Math.max(extent.start, y));
    session.changed("selection");
  };
  /** Change the scale around a point, from 0 to 1 on the canvas. @param {number} factor @param {{ x: number, y: number }} point */
  const zoomBy = (factor, point = { x: 0.5, y: 0.5 }) => {
    const before = plane.scale;
    plane.scale = Math.min(LARGEST_SCALE, Math.max(1, before * factor));
    const shift = 1 / before - 1 / plane.scale;
    moveTo(plane.x + point.x * spanX * shift, plane.y + point.y * spanY * shift);
    byId("zoom-out", HTMLButtonElement).disabled = plane.scale === 1;
    byId("zoom-in", HTMLButtonElement).disabled = plane.scale === LARGEST_SCALE;
    byId("zoom-value", HTMLElement).textContent = plane.scale === 1 ? "" : `${plane.scale} ×`;
  };
  byId("zoom-in", HTMLButtonElement).addEventListener("click", () => zoomBy(2));
  byId("zoom-out", HTMLButtonElement).addEventListener("click", () => zoomBy(0.5));
  /** @type {{ x: number, y: number } | null} */ let held = null; // a point of the plane that moves with the pointer

  /** The ellipse under the pointer: the selected one first, then the nearest. @param {{ x: number, y: number }} point */
  const find = (point) => {
    const { layer, selected } = session.state;
    const reach = 9 / zoom();
    const active = session.active(layer);
    const first = active.filter(({ j }) => j === selected);
    /** @type {{ j: number, kind: "centre" | "rim", axis: "x" | "y" | "both", distance: number } | null} */ let best = null;
    for (const { j } of [...first, ...active]) {
      const e = ellipseOf(session, layer, j);
      const [dx, dy] = [point.x - e.x, point.y - e.y];
      const [rx, ry] = [shownRadius(e.radiusX, zoom()), shownRadius(e.radiusY, zoom())];
      const ring = Math.hypot(dx / rx, dy / ry);
      const fromRim = Math.abs(ring - 1) * Math.min(rx, ry);
      const fromCentre = Math.hypot(dx, dy);
      const onRim = j === selected && ring > 0.72 && fromRim < reach;
      if (!onRim && fromCentre > reach && ring > 1) continue;
      const axis = Math.abs(dx / rx) > 2.2 * Math.abs(dy / ry) ? "x" : Math.abs(dy / ry) > 2.2 * Math.abs(dx / rx) ? "y" : "both";
      const distance = (j === selected ? 0 : 1e3) + (onRim ? fromRim : fromCentre);
      if (!best || distance < best.distance) best = { j, kind: onRim ? "rim" : "centre", axis, distance };
    }
    return best;
  };

  canvas.addEventListener("pointerdown", (event) => {
    canvas.focus({ preventScroll: true });
    const point = at(event);
    if (adding) {
      addFeature(session, point);
      setAdding(false);
      return;
    }
    const hit = find(point);
    const { regions } = session.network.layers[session.state.layer - 1];
    canvas.setPointerCapture(event.pointerId);
    if (!hit) {
      if (plane.scale > 1) held = point;
      session.set({ selected: null }, "selection");
      return;
    }
    drag = { kind: hit.kind, j: hit.j, axis: hit.axis };
    const feature = Math.floor(hit.j / (regions.rows * regions.columns));
    session.set({ selected: hit.j, feature }, "selection");
  });
  canvas.addEventListener("pointermove", (event) => {
    const point = at(event);
    if (drag) return dragTo(session, drag, point);
    if (held) return moveTo(plane.x + held.x - point.x, plane.y + held.y - point.y);
    const hit = find(point);
    canvas.style.cursor = adding ? "copy" : hit ? (hit.kind === "rim" ? "nwse-resize" : "grab") : "default";
    if ((hit?.j ?? null) !== hovered) {
      hovered = hit?.j ?? null;
      session.changed("selection");
    }
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => (drag = held = null));
  canvas.addEventListener("pointerleave", () => {
    hovered = null;
    session.changed("selection");
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      const { selected, layer } = session.state;
      if (event.ctrlKey) {
        event.preventDefault();
        zoomBy(event.deltaY < 0 ? 2 : 0.5, pointerOn(event, canvas));
        return;
      }
      if (selected === null || layer !== session.top) return;
      event.preventDefault();
      scaleFeature(session, selected, event.deltaY < 0 ? 1.08 : 1 / 1.08);
    },
    { passive: false },
  );
  canvas.addEventListener(
    "touchstart",
    (event) => {
      // a finger on an ellipse drags it; anywhere else it scrolls the page
      if (adding || find(at(/** @type {any} */ (event.touches[0])))) event.preventDefault();
    },
    { passive: false },
  );
  canvas.addEventListener("keydown", (event) => {
    if (keyOnCode(session, event)) event.preventDefault();
  });

  const add = byId("add", HTMLButtonElement);
  /** @param {boolean} on */
  const setAdding = (on) => {
    adding = on;
    add.setAttribute("aria-pressed", String(on));
    byId("code-hint", HTMLElement).textContent = on
      ? "Click where a feature of the map chosen in the legend should be; Enter puts it in the middle."
      : "";
  };
  add.addEventListener("click", () => setAdding(!adding));
  add.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !adding) return;
    event.preventDefault();
    addFeature(session, { x: session.size.width / 2, y: session.size.height / 2 });
    setAdding(false);
  });

  session.panels.push((changes) => {
    if (!["latents", "selection", "scheme", "view"].some((change) => changes.has(/** @type {any} */ (change)))) return;
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth || 480;
    [canvas.width, canvas.height] = [width * ratio, ((width * spanY) / spanX) * ratio];
    const context = contextOf(canvas);
    context.setTransform(zoom() * ratio, 0, 0, zoom() * ratio, -plane.x * zoom() * ratio, -plane.y * zoom() * ratio);
    drawPlane(context, session, scratch, hovered, zoom(), plane.scale);
    describe(canvas, session);
  });
}

/**
 * Move μ with the centre, or γ with the rim.
 * @param {Session} session
 * @param {{ kind: "centre" | "rim", j: number, axis: "x" | "y" | "both" }} drag
 * @param {{ x: number, y: number }} point in pixels
 */
function dragTo(session, { kind, j, axis }, point) {
  const k = session.state.layer;
  const { scale } = planeOf(session.network, k);
  const e = ellipseOf(session, k, j);
  const theta = session.latents.theta[k - 1];
  let [muY, muX, gammaY, gammaX] = [theta.muY[j], theta.muX[j], theta.gammaY[j], theta.gammaX[j]];
  if (kind === "centre") {
    muX = session.boundMu(k, (point.x - e.home.x) / scale);
    muY = session.boundMu(k, (point.y - e.home.y) / scale);
  } else {
    const [dx, dy] = [Math.abs(point.x - e.x) / scale, Math.abs(point.y - e.y) / scale];
    const precision = (/** @type {number} */ sigma) => session.boundGamma(1 / Math.max(sigma, 1e-3) ** 2);
    if (axis === "both") gammaX = gammaY = precision(Math.hypot(dx, dy));
    else if (axis === "x") gammaX = precision(dx);
    else gammaY = precision(dy);
  }
  session.edit({ type: "where", layer: k, j, muY, muX, gammaY, gammaX });
}

/** @param {Session} session @param {number} j @param {number} factor */
export function scaleFeature(session, j, factor) {
  session.edit({ type: "what", j, value: (session.latents.p[j] || 0.1 * session.strongest()) * factor });
}

/** Put the feature that is chosen into the region under a point. @param {Session} session @param {{ x: number, y: number }} point */
function addFeature(session, point) {
  const k = session.top;
  const { regions } = session.network.layers[k - 1];
  const { scale, offset } = planeOf(session.network, k);
  const region = (/** @type {number} */ pixel, /** @type {number} */ count) =>
    Math.min(count - 1, Math.max(0, Math.floor(((pixel - offset) / scale + 0.5) / regions.stride)));
  const map = session.state.layer === k ? (session.state.feature ?? 0) : 0;
  const j = (map * regions.rows + region(point.y, regions.rows)) * regions.columns + region(point.x, regions.columns);
  session.set({ layer: k, feature: map, selected: j }, "selection", "view");
  session.edit({ type: "what", j, value: 0.6 * session.strongest() });
}

/** Take a feature away. @param {Session} session @param {number} j */
export function removeFeature(session, j) {
  session.set({ selected: null }, "selection");
  session.edit({ type: "what", j, value: 0 });
}

/** Keys on the plane; returns whether one was meant for it. @param {Session} session @param {KeyboardEvent} event */
function keyOnCode(session, event) {
  const { layer, selected } = session.state;
  const active = session.active(layer);
  if ((event.key === "n" || event.key === "p") && active.length) {
    const now = active.findIndex(({ j }) => j === selected);
    const next = active[(now + (event.key === "n" ? 1 : active.length - 1) + (now < 0 && event.key === "p" ? 1 : 0)) % active.length];
    session.set({ selected: next.j, feature: next.map }, "selection");
    return true;
  }
  if (event.key === "Escape") session.set({ selected: null }, "selection");
  if (selected === null) return false;
  if ((event.key === "+" || event.key === "-") && layer === session.top) {
    scaleFeature(session, selected, event.key === "+" ? 1.1 : 1 / 1.1);
    return true;
  }
  if ((event.key === "Delete" || event.key === "Backspace") && layer === session.top) {
    removeFeature(session, selected);
    return true;
  }
  const moves = /** @type {Record<string, number[]>} */ ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] });
  if (!(event.key in moves)) return false;
  const [dx, dy] = moves[event.key];
  const theta = session.latents.theta[layer - 1];
  const [mu, narrower] = [0.05, 1.25];
  session.edit({
    type: "where",
    layer,
    j: selected,
    muY: session.boundMu(layer, theta.muY[selected] + (event.shiftKey ? 0 : mu * dy)),
    muX: session.boundMu(layer, theta.muX[selected] + (event.shiftKey ? 0 : mu * dx)),
    gammaY: session.boundGamma(theta.gammaY[selected] * (event.shiftKey ? narrower ** dy : 1)),
    gammaX: session.boundGamma(theta.gammaX[selected] * (event.shiftKey ? narrower ** -dx : 1)),
  });
  return true;
}

/** What the plane shows, in words. @param {HTMLCanvasElement} canvas @param {Session} session */
function describe(canvas, session) {
  const { layer, selected } = session.state;
  const active = session.active(layer);
  const chosen = active.find(({ j }) => j === selected);
  const said = chosen
    ? `A feature of map ${chosen.map + 1} in row ${chosen.row + 1}, column ${chosen.column + 1} is selected.`
    : "Press n for the next feature.";
  const count = session.activeCount(layer);
  const drawn = count > active.length ? `; ${active.length} of them are drawn` : "";
  canvas.setAttribute("aria-label", `Plane of the image with ${count} active features of layer ${layer}${drawn}. ${said}`);
}
