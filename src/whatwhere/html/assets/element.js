// Panel "Selected": what and where of one region as sliders, and its weights.
import { removeFeature } from "./code.js";
import { byId, make, short } from "./dom.js";
import { placeOf } from "./geometry.js";
import { css } from "./pictures.js";

/** @typedef {import("./session.js").Session} Session */

/** @param {Session} session */
export function elementPanel(session) {
  const amplitude = byId("amplitude", HTMLInputElement);
  const where = /** @type {const} */ (["mu-x", "mu-y", "gamma-x", "gamma-y"]).map((id) => byId(id, HTMLInputElement));

  amplitude.addEventListener("input", () => {
    const { selected } = session.state;
    if (selected !== null) session.edit({ type: "what", j: selected, value: Number(amplitude.value) });
  });
  const moved = () => {
    const { selected, layer } = session.state;
    if (selected === null) return;
    const [muX, muY, gammaX, gammaY] = where.map(({ value }) => Number(value));
    const precise = (/** @type {number} */ exponent) => session.boundGamma(10 ** exponent);
    session.edit({ type: "where", layer, j: selected, muX, muY, gammaX: precise(gammaX), gammaY: precise(gammaY) });
  };
  for (const slider of where) slider.addEventListener("input", moved);
  byId("delete", HTMLButtonElement).addEventListener("click", () => {
    if (session.state.selected !== null) removeFeature(session, session.state.selected);
  });
  byId("continue", HTMLButtonElement).addEventListener("click", () => session.continueHere());
  byId("discard-edits", HTMLButtonElement).addEventListener("click", () => session.discardEdits());

  session.panels.push((changes) => {
    if (!changes.has("selection") && !changes.has("latents") && !changes.has("view")) return;
    const edited = session.state.actions.length;
    byId("discard-edits", HTMLButtonElement).disabled = edited === 0;
    byId("edited", HTMLElement).textContent = edited ? "edited by hand" : "";
    const { selected, layer } = session.state;
    byId("element", HTMLElement).hidden = selected === null;
    byId("element-empty", HTMLElement).hidden = selected !== null;
    if (selected === null) return;
    const { regions, kind } = session.network.layers[layer - 1];
    const { map, row, column } = placeOf(regions, selected);
    const theta = session.latents.theta[layer - 1];
    const isTop = layer === session.top;
    const value = session.descent().pHat[layer][selected];
    const title = byId("element-title", HTMLElement);
    title.textContent = `Feature of map ${map + 1} of layer ${layer}, row ${row + 1}, column ${column + 1}`;
    title.style.borderColor = css(session.colours[layer - 1][map]);
    amplitude.disabled = byId("delete", HTMLButtonElement).disabled = !isTop;
    amplitude.max = String(Math.max(2 * session.strongest(), value));
    amplitude.value = String(value);
    byId("amplitude-value", HTMLElement).textContent = short(value);
    const reach = (regions.size - 1) / 2;
    const values = [theta.muX, theta.muY, theta.gammaX, theta.gammaY].map((variable) => variable[selected]);
    where.forEach((slider, n) => {
      const isMu = n < 2;
      const { gammaMin, gammaMax } = session.page.settings;
      const [low, high] = isMu ? [-reach, reach] : [Math.log10(Math.max(gammaMin, 1e-4)), Math.log10(gammaMax)];
      [slider.min, slider.max, slider.step] = [String(low), String(high), isMu ? "0.01" : "0.02"];
      slider.disabled = kind !== "gaussian";
      slider.value = String(isMu ? values[n] : Math.log10(Math.max(values[n], 1e-4)));
      slider.setAttribute("aria-valuetext", short(values[n]));
      byId(`${slider.id}-value`, HTMLElement).textContent = short(values[n]);
    });
    drawWeights(session, layer, selected, map);
  });
}

/** The weights w of a region's elements, squared, so that they sum to one. @param {Session} session @param {number} k @param {number} j @param {number} map */
function drawWeights(session, k, j, map) {
  const { size } = session.network.layers[k - 1].regions;
  const weights = session.weights()[k - 1];
  const grid = byId("weights", HTMLElement);
  grid.style.gridTemplateColumns = `repeat(${size}, 1fr)`;
  const cells = [];
  for (let y = 0; y < size; y++) {
    for (let x = 0; x < size; x++) {
      const share = (weights.y[j * size + y] * weights.x[j * size + x]) ** 2;
      const cell = make("span", { title: `weight² ${short(share)}` }, `${Math.round(100 * share)}`);
      cell.style.background = css(session.colours[k - 1][map], 0.05 + 0.8 * share);
      cells.push(cell);
    }
  }
  grid.replaceChildren(...cells);
}
