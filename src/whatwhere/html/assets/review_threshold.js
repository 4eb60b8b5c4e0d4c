// The threshold: every step of the slider is one picture, shown or normal, more or less above it.
import { byId, make } from "./dom.js";

const BINS = 40;
const DRAWN_WIDTH = 640;
const DRAWN_HEIGHT = 76;
const SPREAD = 4; // how far beyond the threshold the drawing goes, in distances from the median to it

/** How many of some scores, the largest first, are above a threshold. @param {number[]} scores @param {number} threshold */
export function countAbove(scores, threshold) {
  let low = 0;
  let high = scores.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (scores[middle] > threshold) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** A share in percent, two figures. @param {number} share */
export const inPercent = (share) => `${Number((100 * share).toPrecision(2))} %`;

/** "1 picture", "2 pictures". @param {number} count @param {string} thing */
export const plural = (count, thing) => `${count.toLocaleString("en")} ${thing}${count === 1 ? "" : "s"}`;

/**
 * Where thresholds differ: between any two neighbours of all scores, and beyond both ends; the lowest first.
 * @param {number[]} scores @param {number} own the threshold of the detector, which is one of them
 */
export function steps(scores, own) {
  const sorted = Float64Array.from(new Set(scores)).sort();
  const between = [sorted[0] - 1];
  for (let i = 1; i < sorted.length; i += 1) between.push((sorted[i - 1] + sorted[i]) / 2);
  between.push(sorted[sorted.length - 1] + 1);
  // The detector's own value replaces the step that separates the same pictures.
  let same = 0;
  while (same < sorted.length && sorted[same] <= own) same += 1;
  between[same] = own;
  return { values: between, own: same };
}

/** Shares of scores by bins. @param {number[]} scores @param {number} low @param {number} high */
function shares(scores, low, high) {
  const bins = new Array(BINS).fill(0);
  for (const score of scores) {
    const bin = Math.floor((BINS * (score - low)) / (high - low));
    bins[Math.max(0, Math.min(BINS - 1, bin))] += 1 / scores.length;
  }
  return bins;
}

/** @param {string} name @param {Record<string, string | number>} attributes @param {string} [text] */
export function svg(name, attributes, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.textContent = text;
  return element;
}

/**
 * Draw the histogram once; the function that it returns moves the line of the threshold.
 * @param {import("./review_data.js").Findings} data
 * @returns {(threshold: number) => void}
 */
export function histogram(data) {
  const drawing = byId("histogram", SVGSVGElement);
  const all = [...data.scores, ...(data.normal ?? [])].sort((a, b) => a - b);
  const median = all[all.length >> 1];
  const low = Math.min(all[0], data.threshold);
  const reach = Math.max(data.threshold - median, 1e-6);
  const high = Math.max(Math.min(all[all.length - 1], data.threshold + SPREAD * reach), data.threshold + reach / 2);
  /** @type {[number[], string][]} */
  const sets = [[shares(data.scores, low, high), "shown"]];
  if (data.normal) sets.unshift([shares(data.normal, low, high), "normal"]);
  const tallest = Math.max(...sets.flatMap(([bins]) => bins)) || 1;
  for (const [bins, kind] of sets) {
    const tops = bins.map((share) => `V${(DRAWN_HEIGHT * (1 - share / tallest)).toFixed(1)}h${DRAWN_WIDTH / BINS}`).join("");
    drawing.append(svg("path", { d: `M0 ${DRAWN_HEIGHT}${tops}V${DRAWN_HEIGHT}`, class: `bars ${kind}` }));
  }
  drawing.append(svg("line", { x1: 0, x2: DRAWN_WIDTH, y1: DRAWN_HEIGHT, y2: DRAWN_HEIGHT }));
  drawing.append(svg("text", { x: 0, y: DRAWN_HEIGHT + 17 }, low.toFixed(1)));
  const more = all[all.length - 1] > high ? " and more" : "";
  drawing.append(svg("text", { x: DRAWN_WIDTH, y: DRAWN_HEIGHT + 17, "text-anchor": "end" }, `${high.toFixed(1)}${more}`));
  const line = svg("line", { y1: 0, y2: DRAWN_HEIGHT, "stroke-dasharray": "4 3", class: "at" });
  const word = svg("text", { y: -6, "text-anchor": "middle" });
  drawing.append(line, word);
  byId("histogram-words", HTMLElement).textContent = data.normal
    ? "Red: scores of these pictures. Grey: scores of the normal pictures that the detector learned from."
    : "Scores of these pictures.";
  return (threshold) => {
    const x = Math.max(0, Math.min(DRAWN_WIDTH, (DRAWN_WIDTH * (threshold - low)) / (high - low)));
    line.setAttribute("x1", x.toFixed(1));
    line.setAttribute("x2", x.toFixed(1));
    word.setAttribute("x", Math.max(48, Math.min(DRAWN_WIDTH - 48, x)).toFixed(1));
    word.textContent = `threshold ${threshold.toFixed(2)}`;
  };
}

/**
 * What a threshold means, in words.
 * @param {import("./review_data.js").Findings} data @param {number} threshold
 * @param {Map<string, string>} marks
 */
export function meaning(data, threshold, marks) {
  const alarms = countAbove(data.scores, threshold);
  const words = [`Threshold ${threshold.toFixed(2)}: ${alarms.toLocaleString("en")} of ${plural(data.scores.length, "picture")} ${alarms === 1 ? "is an alarm" : "are alarms"}.`];
  if (data.normal) {
    const normal = countAbove(data.normal, threshold);
    const rate = (normal + 1) / (data.normal.length + 1);
    const [low, high] = data.intervals[Math.min(normal, data.intervals.length - 1)];
    words.push(
      `${normal.toLocaleString("en")} of the ${plural(data.normal.length, "normal picture")} would be ${normal === 1 ? "an alarm" : "alarms"}: expect about ${inPercent(Math.min(1, rate))} of new normal pictures (95 % interval: ${inPercent(low)} to ${inPercent(high)}).`,
    );
  }
  for (const [mark, thing] of [["defect", "marked defect"], ["false alarm", "marked false alarm"]]) {
    let marked = 0;
    let above = 0;
    data.names.forEach((name, row) => {
      if (marks.get(name) !== mark) return;
      marked += 1;
      if (data.scores[row] > threshold) above += 1;
    });
    if (marked) words.push(`Of ${plural(marked, thing)}, ${above} ${above === 1 ? "is an alarm" : "are alarms"}.`);
  }
  return words.join(" ");
}

/** A line for the terminal in a paragraph. @param {HTMLElement} paragraph @param {string} words @param {string} line */
export function showCommand(paragraph, words, line) {
  paragraph.replaceChildren(words, make("code", {}, line));
}
