// Panel "Max pooling": the same image and the same filters with Gaussians that move, and with switches that do not.
import { byId, short } from "./dom.js";
import { allWeights, descend } from "./engine.js";
import { drawImage, drawResidual } from "./pictures.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./worker.js").Report} Report */

/** @param {Session} session */
export function comparePanel(session) {
  const panel = byId("compare-panel", HTMLDetailsElement);
  /** @type {{ key: string, report: Report | null }} */ let max = { key: "", report: null };
  panel.addEventListener("toggle", () => {
    if (panel.open !== session.state.compare) session.set({ compare: panel.open }, "view");
  });

  const infer = async () => {
    const key = JSON.stringify([Array.from(session.image), session.settings()]);
    if (key === max.key) return;
    max = { key, report: null };
    const job = { image: session.signal, settings: session.settings(), pooling: /** @type {const} */ ("max"), from: null };
    const report = await session.background.add(() => (max.key === key ? job : null));
    if (!report || max.key !== key) return;
    max.report = report;
    session.changed("view");
  };

  session.panels.push((changes) => {
    if (changes.has("view")) panel.open = session.state.compare;
    if (!session.state.compare || session.trace.length === 0) return;
    if (!["latents", "view", "scheme", "image"].some((change) => changes.has(/** @type {any} */ (change)))) return;
    if (!session.running) void infer();
    drawImage(byId("gaussian-reconstruction", HTMLCanvasElement), session.reconstruction(), session.size);
    drawResidual(byId("gaussian-residual", HTMLCanvasElement), session.error(), session.inkSize, session.fullInk);
    byId("gaussian-cost", HTMLElement).textContent = inWords(session.objective());
    const { report } = max;
    byId("max-cost", HTMLElement).textContent = report ? inWords(report.objective) : "inferring …";
    for (const id of ["max-reconstruction", "max-residual"]) {
      const canvas = byId(id, HTMLCanvasElement);
      canvas.classList.toggle("waiting", !report);
      if (!report) drawImage(canvas, session.image, session.size);
    }
    if (!report) return;
    const { p, theta } = session.latentsOf(report.latents);
    const [drawn] = descend(session.network, p, allWeights(session.network, theta)).pHat;
    const error = drawn.map((value, i) => value - session.signal[i]);
    drawImage(byId("max-reconstruction", HTMLCanvasElement), session.toImage(drawn), session.size);
    drawResidual(byId("max-residual", HTMLCanvasElement), error, session.inkSize, session.fullInk);
  });
}

/** @param {import("./engine.js").Objective} objective */
const inWords = ({ reconstruction, penalty, nonzeros }) =>
  `cost ${short(reconstruction + penalty)} = ${short(reconstruction)} + ${short(penalty)}, ${nonzeros} features`;
