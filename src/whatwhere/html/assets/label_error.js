// The estimate of the error: words, and a curve against the number of labels with axes.
import { byId, contextOf, styled } from "./dom.js";
import { counted, shared } from "./label_state.js";

const LEFT = 40; // pixels for the numbers of the vertical axis
const BOTTOM = 30;
const TOP = 24;
const RIGHT = 8;

/** @typedef {[labels: number, error: number]} CurvePoint */

/** @typedef {{ share: number, low: number, high: number, confused: [string, string] | null }} ErrorEstimate */

/**
 * @param {{ error: ErrorEstimate | null, words: string, advice: string, curve: CurvePoint[], missing: string }} estimate
 * @param {(classes: string[]) => void} showConfused
 */
export function showError({ error, words, advice, curve, missing }, showConfused) {
  byId("error", HTMLElement).textContent = words || missing || "Estimating …";
  byId("advice-words", HTMLElement).textContent = advice;
  const { suspects } = shared;
  const sure = suspects.length === 0 ? "" : `${counted(suspects.length, "label")} may be wrong: choose “labels that look wrong” above the pictures.`;
  byId("suspects", HTMLElement).textContent = sure;
  const button = byId("advice-show", HTMLButtonElement);
  button.hidden = advice === "";
  button.onclick = () => showConfused(error?.confused ?? []);
  const canvas = byId("error-curve", HTMLCanvasElement);
  canvas.hidden = curve.length === 0;
  if (curve.length > 0) drawErrorCurve(canvas, curve);
}

/** A round number above a value, of 1, 2, 5, 10, …. @param {number} value */
function roundAbove(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  const factor = [1, 2, 5, 10].find((one) => one * power >= value) ?? 10;
  return factor * power;
}

/** @param {HTMLCanvasElement} canvas @param {CurvePoint[]} curve */
function drawErrorCurve(canvas, curve) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth || 260;
  const height = canvas.clientHeight || 130;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = contextOf(canvas);
  context.scale(ratio, ratio);
  const most = roundAbove(100 * Math.max(...curve.map(([, error]) => error), 0.01));
  const last = Math.max(roundAbove(curve[curve.length - 1][0]), 10);
  const x = (/** @type {number} */ labels) => LEFT + ((width - LEFT - RIGHT) * labels) / last;
  const y = (/** @type {number} */ percent) => height - BOTTOM - ((height - BOTTOM - TOP) * percent) / most;
  drawAxes(context, { width, height, most, last, x, y });
  context.strokeStyle = styled("--accent");
  context.fillStyle = styled("--accent");
  context.lineWidth = 1.5;
  context.beginPath();
  for (const [labels, error] of curve) context.lineTo(x(labels), y(100 * error));
  context.stroke();
  for (const [labels, error] of curve) context.fillRect(x(labels) - 2, y(100 * error) - 2, 4, 4);
  const [labels, error] = curve[curve.length - 1];
  canvas.setAttribute(
    "aria-label",
    `Estimated error against the number of labels: ${(100 * error).toFixed(1)} % with ${counted(labels, "label")}; the axes end at ${most} % and ${last} labels`,
  );
}

/**
 * @typedef {object} Axes
 * @property {number} width
 * @property {number} height
 * @property {number} most percent at the top
 * @property {number} last labels at the right
 * @property {(labels: number) => number} x
 * @property {(percent: number) => number} y
 */

/** @param {CanvasRenderingContext2D} context @param {Axes} axes */
function drawAxes(context, { width, height, most, last, x, y }) {
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = styled("--muted");
  context.strokeStyle = styled("--rule");
  context.lineWidth = 1;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const percent of [0, most / 2, most]) {
    context.beginPath();
    context.moveTo(LEFT, y(percent));
    context.lineTo(width - RIGHT, y(percent));
    context.stroke();
    context.fillText(`${Number(percent.toPrecision(2))} %`, LEFT - 4, y(percent));
  }
  context.textBaseline = "alphabetic";
  context.textAlign = "center";
  for (const labels of [0, last / 2, last]) {
    context.fillText(String(labels), Math.min(x(labels), width - 12), height - BOTTOM + 13);
  }
  context.fillText("labels", LEFT + (width - LEFT - RIGHT) / 2, height - 3);
  context.textAlign = "left";
  context.fillText("wrong", 0, 10);
}
