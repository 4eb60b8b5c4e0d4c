// Panel "From features to image": every p̂ and every z, from the top layer to the image.
import { byId, make } from "./dom.js";
import { css, drawImage, drawParts, largestOf, pictureCanvas } from "./pictures.js";

/** @typedef {import("./session.js").Session} Session */

/** @param {Session} session */
export function signalPanel(session) {
  const panel = byId("signal-panel", HTMLDetailsElement);
  panel.addEventListener("toggle", () => {
    if (panel.open !== session.state.signal) session.set({ signal: panel.open }, "view");
  });
  let late = 0;
  session.panels.push((changes) => {
    if (changes.has("view")) panel.open = session.state.signal;
    if (!session.state.signal) return;
    if (!changes.has("latents") && !changes.has("view") && !changes.has("scheme")) return;
    clearTimeout(late);
    late = window.setTimeout(() => showSignal(session), 80);
  });
}

/** @param {Session} session */
function showSignal(session) {
  const { pHat, z } = session.descent();
  const rows = [];
  for (let k = session.top; k >= 1; k--) {
    const { maps, rows: h, columns: w, height, width } = session.network.layers[k - 1].regions;
    const name = k === session.top ? `p${subscript(k)}, the features` : `p̂${subscript(k)}, from the layer above`;
    rows.push(mapRow(session, k, name, pHat[k], maps, h, w));
    rows.push(mapRow(session, k, `z${subscript(k)}, unpooled: each feature spread by its Gaussian`, z[k - 1], maps, height, width));
  }
  const picture = pictureCanvas(session.size, "The reconstruction");
  drawImage(picture, session.reconstruction(), session.size);
  rows.push(make("div", {}, make("h4", {}, "R p, the reconstruction"), make("div", { class: "maps large" }, picture)));
  byId("signal", HTMLElement).replaceChildren(...rows);
}

/** @param {number} k */
const subscript = (k) => "₀₁₂₃₄₅₆₇₈₉"[k] ?? `_${k}`;

/**
 * The maps of one stage that are not empty, each in its hue.
 * @param {Session} session
 * @param {number} k
 * @param {string} name
 * @param {Float64Array} values
 * @param {number} maps
 * @param {number} height
 * @param {number} width
 */
function mapRow(session, k, name, values, maps, height, width) {
  const size = { channels: 1, height, width };
  const largest = largestOf(values) || 1;
  const shown = [];
  for (let map = 0; map < maps; map++) {
    const own = values.subarray(map * height * width, (map + 1) * height * width);
    if (largestOf(own) < 0.01 * largest) continue;
    const picture = pictureCanvas(size, `Map ${map + 1}`);
    drawParts(picture, [{ colour: session.colours[k - 1][map], pixels: own }], size, largest);
    picture.style.borderColor = css(session.colours[k - 1][map]);
    const choose = () => session.set({ layer: k, feature: map, selected: null }, "selection", "view");
    shown.push(make("button", { class: "tile", title: `Map ${map + 1}`, onclick: choose }, picture, make("span", {}, String(map + 1))));
  }
  return make("div", {}, make("h4", {}, name), make("div", { class: "maps" }, ...shown));
}
