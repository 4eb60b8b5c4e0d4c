// The legend, in which a feature map is chosen, and the panel "A feature map": its filters, what it draws alone, random
// activations, where it occurs, what occurs with it.
import { byId, make } from "./dom.js";
import { allWeights, descend } from "./engine.js";
import { drawSome } from "./examples.js";
import { footprint, placeOf } from "./geometry.js";
import { css, cut, drawImage, drawParts, largestOf, pictureCanvas } from "./pictures.js";
import { regionCount } from "./pooling.js";

/** @typedef {import("./session.js").Session} Session */

const SAMPLES = 16;

/** @param {Session} session */
export function featurePanel(session) {
  let shown = "";
  let [sampled, drawn] = [0, 0]; // activations to draw samples from, and how often they were drawn
  /** @type {Map<number, Promise<any>>} */ const inferred = new Map();
  session.panels.push((changes) => {
    if (changes.has("examples") || changes.has("image")) showPending(session);
    if (!["selection", "examples", "view", "scheme"].some((change) => changes.has(/** @type {any} */ (change)))) return;
    const { layer, feature } = session.state;
    byId("feature", HTMLElement).hidden = feature === null;
    byId("feature-empty", HTMLElement).hidden = feature !== null;
    const key = `${layer} ${feature} ${document.documentElement.dataset.scheme}`;
    if (feature === null || (key === shown && !changes.has("examples"))) return;
    const isNew = key !== shown;
    shown = key;
    const title = byId("feature-title", HTMLElement);
    title.textContent = `Feature map ${feature + 1} of layer ${layer}`;
    title.style.borderColor = css(session.colours[layer - 1][feature]);
    if (isNew) {
      showFilters(session, layer, feature);
      showAlone(session, layer, feature);
    }
    const isTop = layer === session.top;
    byId("feature-examples", HTMLElement).hidden = !isTop;
    byId("feature-lower", HTMLElement).hidden = isTop;
    if (!isTop) return;
    const activations = session.examples.activations(feature);
    showOccurrence(session, feature, activations);
    showTogether(session, feature);
    if (!isNew && sampled >= SAMPLES) return;
    sampled = activations.length;
    const round = (drawn += 1);
    void showSamples(session, feature, activations, inferred, () => round === drawn && key === shown);
  });
}

/** Say how many examples are inferred, while others follow. @param {Session} session */
function showPending({ examples }) {
  const known = examples.codes.length;
  for (const line of document.querySelectorAll(".examples-pending")) {
    /** @type {HTMLElement} */ (line).hidden = known >= examples.expected;
    line.textContent = `inferring examples: ${known.toLocaleString("en")} of ${examples.expected.toLocaleString("en")}`;
  }
}

/** The filter planes of a feature map, one for each map below that it connects to. @param {Session} session @param {number} k @param {number} map */
function showFilters(session, k, map) {
  const layer = session.model.layers[k - 1];
  const below = k === 1 ? session.inkSize.channels : session.model.layers[k - 2].maps;
  const area = layer.filterSize ** 2;
  const plane = (/** @type {number} */ c) => layer.filters.subarray((c * layer.maps + map) * area, (c * layer.maps + map + 1) * area);
  const connected = Array.from({ length: below }, (_, c) => c).filter((c) => layer.connected[c * layer.maps + map]);
  const largest = Math.max(...connected.map((c) => largestOf(plane(c)))) || 1;
  const size = { channels: 1, height: layer.filterSize, width: layer.filterSize };
  byId("filters", HTMLElement).replaceChildren(
    ...connected.map((c) => {
      const name = k === 1 ? (below === 1 ? "filter" : `channel ${c + 1}`) : `map ${c + 1} of layer ${k - 1}`;
      const picture = pictureCanvas(size, `Filter plane for ${name}`);
      drawImage(picture, plane(c), size, largest);
      return make("figure", { title: name }, picture, make("figcaption", {}, k === 1 ? "" : String(c + 1)));
    }),
  );
}

/** What a feature draws in the middle of the plane when every Gaussian is flat. @param {Session} session @param {number} k @param {number} map */
function showAlone(session, k, map) {
  const { regions } = session.network.layers[k - 1];
  const [row, column] = [Math.floor(regions.rows / 2), Math.floor(regions.columns / 2)];
  const p = new Float64Array(regionCount(regions));
  p[(map * regions.rows + row) * regions.columns + column] = 1;
  const flat = session.emptyLatents().theta.slice(0, k);
  const pixels = descend(session.network, p, allWeights(session.network, flat)).pHat[0];
  const { picture } = cutOut(session, k, row, column, pixels, session.colours[k - 1][map], "What the feature draws alone");
  byId("alone", HTMLElement).replaceChildren(picture);
}

/**
 * A picture cut to the footprint of a place, by its own largest pixel.
 * @param {Session} session
 * @param {number} k
 * @param {number} row
 * @param {number} column
 * @param {Float64Array} pixels
 * @param {number[]} colour
 * @param {string} label
 */
function cutOut(session, k, row, column, pixels, colour, label) {
  const [y, x] = [footprint(session.network, k, row), footprint(session.network, k, column)];
  const size = { channels: session.inkSize.channels, height: y.beyond - y.first, width: x.beyond - x.first };
  const shown = cut(pixels, session.inkSize, y.first, x.first, size.height, size.width);
  const picture = pictureCanvas(size, label);
  drawParts(picture, [{ colour, pixels: shown }], size, largestOf(shown) || 1);
  return { picture };
}

/**
 * How often the feature occurs in each region, over the average of the examples.
 * @param {Session} session
 * @param {number} map
 * @param {{ place: number }[]} activations
 */
function showOccurrence(session, map, activations) {
  const { regions } = session.network.layers[session.top - 1];
  const counts = new Float64Array(regions.rows * regions.columns);
  for (const { place } of activations) counts[place % counts.length] += 1;
  const size = { channels: 1, height: regions.rows, width: regions.columns };
  const canvas = byId("occurrence", HTMLCanvasElement);
  drawParts(canvas, [{ colour: session.colours[session.top - 1][map], pixels: counts }], size, largestOf(counts) || 1);
  const images = new Set(activations.map((one) => /** @type {any} */ (one).example)).size;
  const known = session.examples.codes.length;
  const share = known > 0 ? ((100 * images) / known).toFixed(0) : "–";
  byId("occurrence-count", HTMLElement).textContent = `in ${share} % of ${known.toLocaleString("en")} examples`;
}

/** @param {Session} session @param {number} map */
function showTogether(session, map) {
  const maps = session.network.layers[session.top - 1].regions.maps;
  const found = session.examples.together(map, maps).slice(0, 5);
  byId("together", HTMLElement).replaceChildren(
    ...found.map(({ map: other, share, lift }) => {
      const chip = make(
        "button",
        {
          class: "chip",
          title: `in ${(100 * share).toFixed(0)} % of the images that have this feature`,
          onclick: () => session.set({ feature: other, selected: null }, "selection"),
        },
        `${other + 1}`,
        make("small", {}, ` ×${lift.toFixed(1)}`),
      );
      chip.style.borderColor = css(session.colours[session.top - 1][other]);
      return chip;
    }),
  );
}

/**
 * Activations drawn at random from all examples, each with the Gaussians of its own image. These are inferred now, in
 * the background, and kept.
 * @param {Session} session
 * @param {number} map
 * @param {{ example: number, place: number, value: number }[]} activations
 * @param {Map<number, Promise<any>>} inferred
 * @param {() => boolean} wanted
 */
async function showSamples(session, map, activations, inferred, wanted) {
  const chosen = drawSome(activations, SAMPLES, map);
  const size = { channels: session.inkSize.channels, height: 1, width: 1 };
  const tiles = chosen.map(() => pictureCanvas(size, "inferring …"));
  for (const tile of tiles) {
    tile.classList.add("waiting");
    drawParts(tile, [], size);
  }
  byId("samples", HTMLElement).replaceChildren(...tiles);
  const count = `${tiles.length} activation${tiles.length === 1 ? "" : "s"}`;
  byId("samples-title", HTMLElement).textContent = `${count}, drawn at random`;
  const colour = session.colours[session.top - 1][map];
  const settings = { ...session.page.settings, steps: session.page.examples.steps };
  for (const [n, { example, place, value }] of chosen.entries()) {
    if (!inferred.has(example)) {
      const job = { image: session.signalOf(session.examples.image(example)), settings, pooling: null, from: null };
      const result = session.sampling.add(() => (wanted() ? job : null));
      inferred.set(example, result);
      void result.then((report) => report ?? inferred.delete(example));
    }
    const report = await inferred.get(example);
    if (!wanted() || !report) return;
    const { theta } = session.latentsOf(report.latents);
    const p = new Float64Array(session.latents.p.length);
    p[place] = value;
    const pixels = descend(session.network, p, allWeights(session.network, theta)).pHat[0];
    const { row, column } = placeOf(session.network.layers[session.top - 1].regions, place);
    const { picture } = cutOut(session, session.top, row, column, pixels, colour, `In example ${example}`);
    const label = session.examples.label(example);
    picture.title = `in example ${example}${label ? `, a ${label}` : ""}`;
    tiles[n].replaceWith(picture);
  }
}

/** Every feature map of the layer with its hue and number; choosing one opens its panel and highlights it. @param {Session} session */
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
          const chip = make("button", { class: "swatch", "aria-label": `Feature map ${map + 1}`, onclick: choose }, String(map + 1));
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
