// The legend: every feature of the layer with its hue and number; choosing one opens its panel and highlights it.
import { css } from "./colours.js";
import { byId, make } from "./dom.js";

/** @typedef {import("./session.js").Session} Session */

/** @param {Session} session */
export function legendPanel(session) {
  const legend = byId("legend", HTMLElement);
  const layers = byId("layer", HTMLSelectElement);
  session.network.layers.forEach((_, k) => {
    const name = k + 1 === session.top ? `Layer ${k + 1} (top)` : `Layer ${k + 1}`;
    layers.append(make("option", { value: String(k + 1) }, name));
  });
  layers.addEventListener("change", () => {
    session.set({ layer: Number(layers.value), selected: null, feature: null }, "selection", "view");
  });
  const view = byId("view", HTMLSelectElement);
  view.addEventListener("change", () => session.set({ view: /** @type {any} */ (view.value) }, "view"));

  let shown = 0;
  session.panels.push((changes) => {
    const { layer, feature } = session.state;
    if (changes.has("view")) [layers.value, view.value] = [String(layer), session.state.view];
    if (layer !== shown) {
      shown = layer;
      legend.replaceChildren(
        ...session.colours[layer - 1].map((colour, map) => {
          const choose = () => session.set({ feature: map, selected: null }, "selection");
          const chip = make("button", { class: "swatch", "aria-label": `Feature ${map + 1}`, onclick: choose }, String(map + 1));
          chip.style.setProperty("--hue", css(colour));
          return chip;
        }),
      );
    }
    if (!changes.has("latents") && !changes.has("selection") && !changes.has("view")) return;
    const here = new Set(session.active(layer).map(({ map }) => map));
    [...legend.children].forEach((chip, map) => {
      chip.classList.toggle("idle", !here.has(map));
      chip.setAttribute("aria-pressed", String(map === feature));
    });
  });
}
