// "Why?": one sentence, the picture with the part that is meant, and the nearest labelled ones; the features that they
// share behind "Details".
import { make } from "./dom.js";
import { colourOf } from "./label_colours.js";
import { smallCanvas } from "./label_small.js";
import { shared } from "./label_state.js";
import { css, drawParts, featureColours, pictureCanvas } from "./pictures.js";

/**
 * @param {HTMLElement} place
 * @param {any} why what the server found
 * @param {number} row the picture that is explained
 */
export function showReasons(place, why, row) {
  if (!why.nearest) return;
  if (why.nearest.length === 0) {
    place.replaceChildren(make("p", { class: "empty" }, "No other picture has a label yet."));
    return;
  }
  const heads = [thisPicture(row), ...why.nearest.map(neighbour)];
  const said = why.words ? [make("p", { class: "why-words" }, why.words), heatMap(why, row)] : [];
  place.replaceChildren(...said, make("div", { class: "reason" }, ...heads));
  if (why.features.length === 0) return;
  const details = make("details", { class: "why-details" }, make("summary", {}, "Details: features that they share"));
  for (const feature of why.features) details.append(...sharedFeature(feature, why));
  place.append(details);
}

/** The picture; the part that is like the labelled ones keeps its light. @param {any} why @param {number} row */
function heatMap(why, row) {
  const alt = `${shared.names[row]}: the part that is like them keeps its light`;
  return make("img", { class: "heat", alt, src: `data:image/png;base64,${why.drawn}` });
}

/** @param {number} row */
function thisPicture(row) {
  const canvas = smallCanvas(row);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `This picture, ${shared.names[row]}`);
  return make("span", { title: shared.names[row] }, canvas, make("b", {}, "this"));
}

/** @param {{ row: number, class: string, cosine: number }} one */
function neighbour(one) {
  const name = shared.names[one.row];
  const canvas = smallCanvas(one.row);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `${name}, labelled ${one.class}`);
  canvas.style.borderColor = colourOf(one.class);
  const likeness = make("small", { title: "cosine of the descriptors" }, one.cosine.toFixed(2));
  return make("span", { title: name }, canvas, one.class, likeness);
}

/** @param {{ map: number, drawn: string[] }} feature @param {any} why */
function sharedFeature(feature, why) {
  const colour = featureColours(why.maps ?? 1)[feature.map];
  const size = { channels: 1, height: why.height, width: why.width };
  const pictures = feature.drawn.map((text, n) => {
    const pixels = Float64Array.from(atob(text), (letter) => letter.charCodeAt(0) / 255);
    const whose = n === 0 ? "this picture" : shared.names[why.nearest[n - 1].row];
    const canvas = pictureCanvas(size, `Feature ${feature.map + 1} in ${whose}`);
    drawParts(canvas, [{ colour, pixels }], size);
    return canvas;
  });
  const name = make("span", { class: "feature-name" }, `feature ${feature.map + 1}`);
  name.style.borderColor = css(colour);
  return [make("div", { class: "reason" }, ...pictures), name];
}
