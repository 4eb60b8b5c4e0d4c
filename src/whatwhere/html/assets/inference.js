// Panel "Inference": the cost step by step, play and scrub, and the settings.
import { RANGES } from "./address.js";
import { byId, contextOf, pointerOn, short, styled } from "./dom.js";

/** @typedef {import("./session.js").Session} Session */

const PLAY_SECONDS = 6; // for all steps of a trace

/** @param {Session} session */
export function inferencePanel(session) {
  const scrub = byId("scrub", HTMLInputElement);
  const play = byId("play", HTMLButtonElement);
  let playing = 0;

  const pause = () => {
    cancelAnimationFrame(playing);
    playing = 0;
    session.changed("trace");
  };
  const start = () => {
    const last = session.trace.length - 1;
    const from = session.shownStep() >= last ? 0 : session.shownStep();
    const began = performance.now();
    const frame = () => {
      const step = from + Math.floor(((performance.now() - began) / (1000 * PLAY_SECONDS)) * (session.trace.length - 1));
      session.showStep(step);
      if (step >= session.trace.length - 1) return pause();
      playing = requestAnimationFrame(frame);
    };
    playing = requestAnimationFrame(frame);
  };
  play.addEventListener("click", () => (playing ? pause() : start()));
  scrub.addEventListener("input", () => {
    if (playing) pause();
    session.showStep(Number(scrub.value));
  });
  /** @param {number} by */
  const move = (by) => {
    if (playing) pause();
    session.showStep(Math.max(0, session.shownStep() + by));
  };
  byId("step-back", HTMLButtonElement).addEventListener("click", () => move(-1));
  byId("step-on", HTMLButtonElement).addEventListener("click", () => move(1));
  const curve = byId("curve", HTMLCanvasElement);
  /** @param {PointerEvent} event */
  const scrubOnCurve = (event) => {
    if (event.buttons !== 1) return;
    if (playing) pause();
    session.showStep(Math.round(pointerOn(event, curve).x * (session.trace.length - 1)));
  };
  curve.addEventListener("pointerdown", scrubOnCurve);
  curve.addEventListener("pointermove", scrubOnCurve);
  settingsSliders(session);

  session.panels.push((changes) => {
    if (!["trace", "latents", "scheme", "view"].some((change) => changes.has(/** @type {any} */ (change)))) return;
    if (!session.trace.length) return;
    const { reconstruction, penalty, nonzeros } = session.objective();
    byId("cost", HTMLElement).textContent = short(reconstruction + penalty);
    byId("cost-reconstruction", HTMLElement).textContent = short(reconstruction);
    byId("cost-penalty", HTMLElement).textContent = short(penalty);
    byId("nonzeros", HTMLElement).textContent = String(nonzeros);
    scrub.max = String(session.trace.length - 1);
    scrub.value = String(session.shownStep());
    byId("step-label", HTMLElement).textContent = `step ${session.shownStep()} of ${session.trace.length - 1}`;
    play.textContent = playing ? "Pause" : "Play";
    play.setAttribute("aria-pressed", String(playing !== 0));
    byId("running", HTMLElement).hidden = !session.running;
    const progress = byId("inference-progress", HTMLProgressElement);
    progress.classList.toggle("idle", !session.running);
    progress.value = Math.min(1, (session.trace.length - 1) / Math.max(1, session.state.steps));
    drawCurve(curve, session);
  });
}

/** @param {Session} session */
function settingsSliders(session) {
  /** @type {[id: string, name: "lambda" | "alpha" | "steps" | "poolingStep", logarithmic: boolean][]} */
  const sliders = [
    ["lambda", "lambda", true],
    ["alpha", "alpha", false],
    ["steps", "steps", false],
    ["pooling-step", "poolingStep", false],
  ];
  for (const [id, name, logarithmic] of sliders) {
    const slider = byId(id, HTMLInputElement);
    const [low, high] = RANGES[name];
    const toSlider = (/** @type {number} */ value) => (logarithmic ? Math.log10(value) : value);
    const fromSlider = (/** @type {number} */ value) => Number((logarithmic ? 10 ** value : value).toPrecision(3));
    [slider.min, slider.max] = [String(toSlider(low)), String(toSlider(high))];
    slider.step = name === "steps" ? "10" : "0.05";
    slider.addEventListener("input", () => session.setSettings({ [name]: fromSlider(Number(slider.value)) }));
    session.panels.push((changes) => {
      if (!changes.has("view")) return;
      slider.value = String(toSlider(session.state[name]));
      slider.setAttribute("aria-valuetext", short(session.state[name]));
      byId(`${id}-value`, HTMLElement).textContent = name === "steps" ? String(session.state.steps) : short(session.state[name]);
    });
  }
  const { defaults, page } = session;
  byId("preset-training", HTMLButtonElement).addEventListener("click", () => {
    const { lambda, alpha, steps, poolingStep } = defaults;
    session.setSettings({ lambda, alpha, steps, poolingStep });
  });
  byId("preset-test", HTMLButtonElement).addEventListener("click", () => session.setSettings(page.testSettings));
}

/**
 * Reconstruction and penalty stacked over the steps, on a logarithmic scale of the steps' cost.
 * @param {HTMLCanvasElement} canvas
 * @param {Session} session
 */
function drawCurve(canvas, session) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth || 280, canvas.clientHeight || 110];
  [canvas.width, canvas.height] = [width * ratio, height * ratio];
  const context = contextOf(canvas);
  context.scale(ratio, ratio);
  const { trace } = session;
  const costs = trace.map(({ objective: o }) => o.reconstruction + o.penalty);
  const steps = Math.max(1, session.running ? Math.max(session.state.steps, trace.length - 1) : trace.length - 1);
  const highest = Math.max(...costs, 1e-9) * 1.04;
  const [x, y] = [(/** @type {number} */ t) => 1 + ((width - 2) * t) / steps, (/** @type {number} */ c) => height - 14 - ((height - 16) * c) / highest];
  /** @param {number[]} lower @param {number[]} upper @param {string} colour */
  const area = (lower, upper, colour) => {
    context.beginPath();
    upper.forEach((c, t) => context.lineTo(x(t), y(c)));
    for (let t = lower.length - 1; t >= 0; t--) context.lineTo(x(t), y(lower[t]));
    context.fillStyle = colour;
    context.fill();
  };
  const penalties = trace.map(({ objective: o }) => o.penalty);
  area(costs.map(() => 0), penalties, styled("--penalty"));
  area(penalties, costs, styled("--reconstruction"));
  context.font = "10px system-ui, sans-serif";
  context.fillStyle = context.strokeStyle = styled("--text");
  context.beginPath();
  const at = x(session.shownStep());
  context.moveTo(at, 0);
  context.lineTo(at, height - 14);
  context.lineWidth = 1.5;
  context.stroke();
  context.fillStyle = styled("--muted");
  context.fillText("0", 1, height - 3);
  const end = `${steps} steps`;
  context.fillText(end, width - context.measureText(end).width - 1, height - 3);
  canvas.setAttribute(
    "aria-label",
    `Cost over ${steps} steps, from ${short(costs[0])} to ${short(costs[costs.length - 1])}; drag to choose a step`,
  );
}
