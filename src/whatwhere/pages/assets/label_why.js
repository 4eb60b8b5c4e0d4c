// "Why?": the nearest labelled pictures, and what the features that they share draw in each of them.
import { make } from "./dom.js";
import { css, drawParts, featureColours, pictureCanvas } from "./pictures.js";

/**
 * @param {HTMLElement} place
 * @param {any} why what the server found
 * @param {{ drawSmall: any, names: string[], side: number }} page
 */
export function showReasons(place, why, { drawSmall, names, side }) {
  if (!why.nearest) return;
  if (why.nearest.length === 0) {
    place.replaceChildren(make("p", { class: "quiet" }, "No other picture has a label yet."));
    return;
  }
  const heads = why.nearest.map((/** @type {any} */ one) => {
    const canvas = make("canvas", { width: side, height: side, class: "picture", role: "img", "aria-label": `${names[one.row]}, labelled ${one.class}` });
    const context = canvas.getContext("2d");
    if (context) drawSmall(context, one.row, 0, 0, side);
    return make("span", { title: names[one.row] }, canvas, `${one.class}, ${one.cosine.toFixed(2)}`);
  });
  const colours = featureColours(why.maps ?? 1);
  const size = { channels: 1, height: why.height, width: why.width };
  const rows = why.features.map((/** @type {any} */ feature) => {
    const pictures = feature.drawn.map((/** @type {string} */ text, /** @type {number} */ n) => {
      const pixels = Float64Array.from(atob(text), (letter) => letter.charCodeAt(0) / 255);
      const canvas = pictureCanvas(size, `Feature ${feature.map + 1} in ${n === 0 ? "this picture" : names[why.nearest[n - 1].row]}`);
      drawParts(canvas, [{ colour: colours[feature.map], pixels }], size);
      return canvas;
    });
    const name = make("span", {}, `feature ${feature.map + 1}`);
    name.style.borderLeft = `5px solid ${css(colours[feature.map])}`;
    return [make("div", { class: "reason" }, ...pictures), name];
  });
  place.replaceChildren(
    make("h3", {}, "Nearest labelled pictures"), make("div", { class: "reason" }, make("span", {}, "this"), ...heads),
    ...(rows.length ? [make("h3", {}, "Features that they share: what, and where")] : []), ...rows.flat(),
  );
}
