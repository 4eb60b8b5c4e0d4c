// Panel "Two images": the what of A with the where of B, everything between, and the nearest examples.
import { byId, make, short } from "./dom.js";
import { allWeights, descend } from "./engine.js";
import { drawImage, pictureCanvas } from "./pictures.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./engine.js").Latents} Latents */
/** @typedef {import("./pooling.js").Theta} Theta */

const NEAREST = 8;

/**
 * Gaussians between those of A and those of B: μ on a line, γ on a line of its logarithm.
 * @param {Theta} a
 * @param {Theta} b
 * @param {number} t
 * @returns {Theta}
 */
export function between(a, b, t) {
  const line = (/** @type {Float64Array} */ from, /** @type {Float64Array} */ to) => from.map((value, j) => value + t * (to[j] - value));
  const ratio = (/** @type {Float64Array} */ from, /** @type {Float64Array} */ to) =>
    from.map((value, j) => (value > 0 && to[j] > 0 ? value ** (1 - t) * to[j] ** t : (1 - t) * value + t * to[j]));
  return {
    muY: line(a.muY, b.muY),
    muX: line(a.muX, b.muX),
    gammaY: ratio(a.gammaY, b.gammaY),
    gammaX: ratio(a.gammaX, b.gammaX),
  };
}

/** @param {Session} session */
export function pairPanel(session) {
  const blend = byId("blend", HTMLInputElement);
  /** @type {{ key: string, latents: Latents | null }} */ let other = { key: "", latents: null };

  const infer = async () => {
    const choice = session.state.other;
    const settings = session.settings();
    const key = choice ? JSON.stringify([session.address().match(/other=[^&]*/)?.[0], settings]) : "";
    if (key === other.key) return;
    other = { key, latents: null };
    if (!choice) return;
    const job = { image: session.signalOf(session.imageOf(choice)), settings, pooling: null, from: null };
    const report = await session.background.add(() => (other.key === key ? job : null));
    if (!report || other.key !== key) return;
    other.latents = session.latentsOf(report.latents);
    session.changed("other");
  };
  byId("set-other", HTMLButtonElement).addEventListener("click", () => session.set({ other: session.state.image }, "other"));
  byId("swap", HTMLButtonElement).addEventListener("click", () => {
    const { image, other: b } = session.state;
    if (!b) return;
    session.set({ other: image }, "other");
    session.setImage(b);
  });
  byId("random-other", HTMLButtonElement).addEventListener("click", () => {
    session.set({ other: { example: Math.floor(Math.random() * session.examples.count) } }, "other");
  });
  blend.addEventListener("input", () => session.set({ blend: Number(blend.value) }, "other"));

  let late = 0;
  session.panels.push((changes) => {
    if (changes.has("other") || changes.has("view") || changes.has("image")) void infer();
    if (!["other", "latents", "examples", "scheme", "image"].some((change) => changes.has(/** @type {any} */ (change)))) return;
    blend.value = String(session.state.blend);
    byId("blend-value", HTMLElement).textContent = short(session.state.blend);
    showPair(session, other.latents);
    if (!changes.has("latents") && !changes.has("examples") && !changes.has("scheme")) return;
    clearTimeout(late);
    late = window.setTimeout(() => showNearest(session), 120);
  });
}

/** @param {Session} session @param {Latents | null} b */
function showPair(session, b) {
  const { other, blend } = session.state;
  byId("pair", HTMLElement).hidden = !other;
  byId("pair-empty", HTMLElement).hidden = other !== null;
  byId("swap", HTMLButtonElement).disabled = byId("blend", HTMLInputElement).disabled = !other;
  if (!other) {
    byId("pair-status", HTMLElement).textContent = "";
    return;
  }
  const { latents: a, network, size } = session;
  drawImage(byId("pair-a", HTMLCanvasElement), session.reconstruction(), size);
  byId("pair-status", HTMLElement).textContent = b ? "" : "Inferring the features of B …";
  for (const id of ["pair-ab", "pair-ba", "pair-b"]) byId(id, HTMLCanvasElement).classList.toggle("waiting", !b);
  if (!b) {
    for (const id of ["pair-ab", "pair-ba"]) drawImage(byId(id, HTMLCanvasElement), session.reconstruction(), size);
    drawImage(byId("pair-b", HTMLCanvasElement), session.imageOf(other), size);
    return;
  }
  /** @param {string} id @param {Float64Array} p @param {Theta[]} theta */
  const draw = (id, p, theta) => {
    drawImage(byId(id, HTMLCanvasElement), session.toImage(descend(network, p, allWeights(network, theta)).pHat[0]), size);
  };
  const mixed = a.theta.map((theta, k) => between(theta, b.theta[k], blend));
  draw("pair-b", b.p, b.theta);
  draw("pair-ab", a.p, mixed);
  draw("pair-ba", b.p, a.theta.map((theta, k) => between(b.theta[k], theta, blend)));
}

/** @param {Session} session */
function showNearest(session) {
  const found = session.examples.nearest(session.latents.p, NEAREST);
  byId("nearest", HTMLElement).replaceChildren(
    ...found.map(({ example, distance }) => {
      const label = session.examples.label(example);
      const name = `Example ${example}${label ? `, labelled ${label}` : ""}, distance ${distance.toFixed(2)}`;
      const picture = pictureCanvas(session.size, name);
      drawImage(picture, session.examples.image(example), session.size);
      const choose = () => session.set({ other: { example } }, "other");
      return make("button", { class: "tile", title: `${name}; take it as B`, onclick: choose }, picture, make("span", {}, distance.toFixed(2)));
    }),
  );
}
