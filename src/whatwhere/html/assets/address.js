// The whole state of the page as the fragment of its address, and back. Whatever is malformed becomes the default.
import { clamp } from "./formulas.js";
import { fromBase64, toBase64 } from "./unpack.js";

export const LEVELS = 15; // a drawn pixel has 16 levels, so that a drawing fits into an address

/** An example by its number, or pixels as levels 0 … 15. @typedef {{ example: number } | { levels: Uint8Array }} ImageChoice */

/**
 * What a person changed: the where of a region, the what of one, a return to an earlier step, or further inference.
 * @typedef {{ type: "where", layer: number, j: number, muY: number, muX: number, gammaY: number, gammaX: number }
 *   | { type: "what", j: number, value: number }
 *   | { type: "back", step: number }
 *   | { type: "continue" }} Action
 */

/**
 * @typedef {object} State
 * @property {ImageChoice} image
 * @property {ImageChoice | null} other image B
 * @property {number} lambda
 * @property {number} alpha
 * @property {number} steps
 * @property {number} poolingStep
 * @property {number | null} step shown; null: the last one
 * @property {Action[]} actions
 * @property {number} layer shown, from 1
 * @property {"colours" | "tiles" | "image"} view
 * @property {number | null} feature of the shown layer, from 0
 * @property {number | null} selected region of the shown layer
 * @property {number} blend of where between A (0) and B (1)
 * @property {boolean} compare with max pooling
 * @property {boolean} signal shown on its way down
 * @property {"auto" | "light" | "dark"} scheme
 */

/** Ranges that sliders offer and addresses may give. */
export const RANGES = {
  lambda: [0.05, 20],
  alpha: [0.5, 1],
  steps: [0, 400],
  poolingStep: [0, 10],
  blend: [0, 1],
};

/** @param {number} value @param {number} digits */
const rounded = (value, digits) => Number(value.toFixed(digits));

/** The precision in which an edit is kept, so that a link repeats it exactly. @param {Action} action @returns {Action} */
export function roundAction(action) {
  if (action.type === "what") return { ...action, value: Number(action.value.toPrecision(5)) };
  if (action.type !== "where") return action;
  const [muY, muX] = [rounded(action.muY, 3), rounded(action.muX, 3)];
  return { ...action, muY, muX, gammaY: rounded(action.gammaY, 4), gammaX: rounded(action.gammaX, 4) };
}

/** @param {ImageChoice} image */
function imageToText(image) {
  if ("example" in image) return `e${image.example}`;
  const runs = [];
  for (let i = 0; i < image.levels.length; ) {
    let length = 1;
    while (length < 16 && image.levels[i + length] === image.levels[i]) length++;
    runs.push((image.levels[i] << 4) | (length - 1));
    i += length;
  }
  const text = toBase64(Uint8Array.from(runs));
  return `d${text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
}

/**
 * @param {string} text
 * @param {{ examples: number, pixels: number }} limits
 * @returns {ImageChoice | null}
 */
function imageFromText(text, { examples, pixels }) {
  if (/^e\d+$/.test(text)) return Number(text.slice(1)) < examples ? { example: Number(text.slice(1)) } : null;
  if (!/^d[\w-]+$/.test(text)) return null;
  const levels = [];
  for (const run of fromBase64(text.slice(1).replaceAll("-", "+").replaceAll("_", "/"))) {
    for (let n = 0; n <= (run & 15); n++) levels.push(run >> 4);
  }
  return levels.length === pixels ? { levels: Uint8Array.from(levels) } : null;
}

/** @param {Action} action */
function actionToText(action) {
  if (action.type === "what") return `p,${action.j},${action.value}`;
  if (action.type === "back") return `s,${action.step}`;
  if (action.type === "continue") return "c";
  return ["w", action.layer, action.j, action.muY, action.muX, action.gammaY, action.gammaX].join(",");
}

/**
 * @param {string} text
 * @param {number[]} regions number of regions of every layer
 * @returns {Action[]}
 */
function actionFromText(text, regions) {
  const [kind, ...rest] = text.split(",");
  const numbers = rest.map(Number);
  if (numbers.some((n) => !Number.isFinite(n))) return [];
  const region = (/** @type {number} */ j, /** @type {number} */ layer) => Number.isInteger(j) && j >= 0 && j < regions[layer - 1];
  if (kind === "c") return [{ type: "continue" }];
  if (kind === "s" && numbers.length === 1) return [{ type: "back", step: Math.max(0, Math.round(numbers[0])) }];
  if (kind === "p" && numbers.length === 2 && region(numbers[0], regions.length)) {
    return [{ type: "what", j: numbers[0], value: clamp(numbers[1], -1e3, 1e3) }];
  }
  if (kind !== "w" || numbers.length !== 6 || !region(numbers[1], numbers[0])) return [];
  const [layer, j, muY, muX, gammaY, gammaX] = numbers;
  const [low, high] = [clamp(gammaY, 0, 1e4), clamp(gammaX, 0, 1e4)];
  return [{ type: "where", layer, j, muY: clamp(muY, -50, 50), muX: clamp(muX, -50, 50), gammaY: low, gammaX: high }];
}

/**
 * The fragment of the address, without what is at its default.
 * @param {State} state
 * @param {State} defaults
 */
export function toAddress(state, defaults) {
  const parts = new URLSearchParams();
  parts.set("image", imageToText(state.image));
  if (state.other) parts.set("other", imageToText(state.other));
  for (const name of /** @type {const} */ (["lambda", "alpha", "steps", "poolingStep", "layer", "view", "blend", "scheme"])) {
    if (state[name] !== defaults[name]) parts.set(name, String(state[name]));
  }
  for (const name of /** @type {const} */ (["step", "feature", "selected"])) {
    if (state[name] !== null) parts.set(name, String(state[name]));
  }
  for (const name of /** @type {const} */ (["compare", "signal"])) if (state[name]) parts.set(name, "1");
  if (state.actions.length) parts.set("actions", state.actions.map(actionToText).join("~"));
  return parts.toString().replaceAll("%2C", ",").replaceAll("%7E", "~");
}

/**
 * @param {string} fragment
 * @param {State} defaults
 * @param {{ examples: number, pixels: number, regions: number[], maps: number[] }} limits
 * @returns {State}
 */
export function fromAddress(fragment, defaults, limits) {
  const parts = new URLSearchParams(fragment.replace(/^#/, ""));
  const state = { ...defaults, actions: /** @type {Action[]} */ ([]) };
  const number = (/** @type {string} */ name) => (parts.get(name) ? Number(parts.get(name)) : NaN);
  const whole = (/** @type {string} */ name, /** @type {number} */ below) =>
    Number.isInteger(number(name)) && number(name) >= 0 && number(name) < below ? number(name) : null;
  try {
    state.image = imageFromText(parts.get("image") ?? "", limits) ?? defaults.image;
    state.other = imageFromText(parts.get("other") ?? "", limits);
  } catch {
    state.image = defaults.image; // not base64
  }
  for (const name of /** @type {const} */ (["lambda", "alpha", "steps", "poolingStep", "blend"])) {
    if (Number.isFinite(number(name))) state[name] = clamp(number(name), RANGES[name][0], RANGES[name][1]);
  }
  state.steps = Math.round(state.steps);
  state.layer = whole("layer", limits.maps.length + 1) || defaults.layer;
  state.step = whole("step", 1e5);
  state.feature = whole("feature", limits.maps[state.layer - 1]);
  state.selected = whole("selected", limits.regions[state.layer - 1]);
  const view = parts.get("view");
  if (view === "colours" || view === "tiles" || view === "image") state.view = view;
  const scheme = parts.get("scheme");
  if (scheme === "light" || scheme === "dark") state.scheme = scheme;
  state.compare = parts.get("compare") === "1";
  state.signal = parts.get("signal") === "1";
  const actions = (parts.get("actions") ?? "").split("~").filter(Boolean).slice(0, 500);
  state.actions = actions.flatMap((text) => actionFromText(text, limits.regions));
  return state;
}
