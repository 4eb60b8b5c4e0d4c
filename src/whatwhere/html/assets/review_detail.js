// The chosen picture, large: as it is, with its map, and the places that were compared.
import { byId, make } from "./dom.js";
import { largePicture, smallPicture } from "./review_data.js";
import { svg } from "./review_threshold.js";

/** @param {string} source @param {string} words */
const picture = (source, words) => make("img", { src: source, alt: words });

/**
 * @param {import("./review_data.js").LargePicture} large
 */
function drawing(large) {
  const [x, y, width, height] = large.place;
  const whole = svg("svg", { viewBox: `0 0 ${large.width} ${large.height}`, class: "over", "aria-hidden": "true" });
  const line = { fill: "none", "vector-effect": "non-scaling-stroke" };
  const box = { x, y, width, height, ...line };
  whole.append(
    svg("path", { d: large.path, ...line, stroke: "#000", "stroke-width": 3.5 }),
    svg("path", { d: large.path, ...line, stroke: "#ffd400", "stroke-width": 1.5 }),
    svg("rect", { ...box, stroke: "#000", "stroke-width": 1.5 }),
    svg("rect", { ...box, stroke: "#fff", "stroke-width": 1.5, "stroke-dasharray": "4 4" }),
  );
  return whole;
}

/**
 * Show a row of the data.
 * @param {import("./review_data.js").Findings} data @param {number} row @param {number} threshold
 */
export function showDetail(data, row, threshold) {
  const name = data.names[row];
  byId("detail-name", HTMLElement).textContent = name;
  const score = byId("detail-score", HTMLElement);
  const alarm = data.scores[row] > threshold;
  score.classList.toggle("alarm", alarm);
  const area = data.areas[row] ? ` · ${Number((100 * data.areas[row]).toPrecision(2))} % inside outlines` : "";
  score.replaceChildren(`${data.scores[row].toFixed(2)} (${alarm ? "alarm" : "below the threshold"})`, make("span", {}, ` ${data.evidence[row].join(", ")}${area}`));
  const original = byId("original", HTMLElement);
  const marked = byId("marked-view", HTMLElement);
  const patches = byId("patches", HTMLElement);
  const large = largePicture(data, row);
  const [source, map] = large ? [large.picture, large.map] : smallPicture(data, row);
  original.replaceChildren(picture(source, name));
  marked.replaceChildren(picture(source, `${name}, with its map`));
  if (map) marked.append(make("img", { src: map, alt: "", class: "over map" }));
  for (const view of [original, marked]) {
    view.style.aspectRatio = large ? `${large.width} / ${large.height}` : "";
    view.style.setProperty("--ratio", large ? String(large.width / large.height) : "1");
    view.classList.toggle("small", !large);
  }
  patches.replaceChildren();
  if (!large) {
    patches.append(make("p", { class: "quiet" }, "The page has large views of the least normal pictures only."));
    return;
  }
  marked.append(drawing(large));
  const [place, ...normal] = large.patches;
  patches.append(
    make("div", {}, make("span", {}, "marked place:"), picture(place, "the least normal place")),
    make("div", {}, make("span", {}, "nearest among the pictures learned from:"), ...normal.map((one) => picture(one, "a normal place"))),
  );
}
