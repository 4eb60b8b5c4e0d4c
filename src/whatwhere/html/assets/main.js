// The page: unpack what it carries, set up the panels, follow the address.
import { codePanel } from "./code.js";
import { comparePanel } from "./compare.js";
import { byId } from "./dom.js";
import { elementPanel } from "./element.js";
import { Examples } from "./examples.js";
import { explorerStops } from "./explorer_tour.js";
import { featurePanel, legendPanel } from "./feature.js";
import { inferencePanel } from "./inference.js";
import { inputPanel } from "./input.js";
import { kindPanel } from "./kind_panel.js";
import { outcomePanel } from "./outcome.js";
import { pairPanel } from "./pair.js";
import { Session } from "./session.js";
import { signalPanel } from "./signal.js";
import { tourGuide } from "./tour.js";

/** @typedef {import("./session.js").PageData} PageData */

/** The scheme of the state, or the system's. @param {Session} session */
function schemePanel(session) {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const now = () => (session.state.scheme === "auto" ? (dark.matches ? "dark" : "light") : session.state.scheme);
  byId("scheme", HTMLButtonElement).addEventListener("click", () => {
    session.set({ scheme: now() === "dark" ? "light" : "dark" }, "scheme");
  });
  dark.addEventListener("change", () => session.changed("scheme"));
  session.panels.push((changes) => {
    if (changes.has("scheme")) document.documentElement.dataset.scheme = now();
  });
}

/** Keep the address up to date, so that it can be copied at any time. @param {Session} session */
function addressPanel(session) {
  let shown = location.hash; // as the page knows it
  let late = 0;
  session.panels.push(() => {
    clearTimeout(late);
    late = window.setTimeout(() => {
      if (location.hash !== shown) return; // a link was followed just now, and its event is on the way
      try {
        history.replaceState(null, "", `#${session.address()}`);
      } catch {
        // a page inside another document may not change its address
      }
      shown = location.hash;
      document.body.setAttribute("aria-busy", String(session.running));
    }, 150);
  });
  window.addEventListener("hashchange", () => {
    if (location.hash === shown) return;
    shown = location.hash;
    session.follow(shown);
  });
  const copy = byId("copy-link", HTMLButtonElement);
  copy.addEventListener("click", async () => {
    const link = `${location.href.replace(/#.*/, "")}#${session.address()}`;
    try {
      await navigator.clipboard.writeText(link);
      copy.textContent = "Copied";
    } catch {
      window.prompt("Copy this link:", link); // the clipboard is closed to pages from a file
    }
    window.setTimeout(() => (copy.textContent = "Copy link"), 1500);
  });
}

async function open() {
  const page = /** @type {PageData} */ (JSON.parse(byId("data", HTMLScriptElement).textContent ?? ""));
  const workerSource = JSON.parse(byId("worker-source", HTMLScriptElement).textContent ?? "");
  document.title = `${page.name} · whatwhere explorer`;
  byId("model-name", HTMLElement).textContent = page.name;
  if (page.learnedFrom) byId("learned-from", HTMLElement).textContent = `, learned from ${page.learnedFrom}`;
  byId("about", HTMLElement).textContent = page.about;
  const pixels = page.model.channels * page.height * page.width;
  const session = new Session(page, workerSource, await Examples.unpack(page.examples, pixels, areaOfTop(page)));
  const panels = [schemePanel, addressPanel, inputPanel, kindPanel, inferencePanel, codePanel, outcomePanel, legendPanel];
  for (const panel of [...panels, elementPanel, featurePanel, pairPanel, comparePanel, signalPanel]) panel(session);
  tourGuide(explorerStops(session));
  for (const canvas of document.querySelectorAll("canvas.picture")) {
    Object.assign(canvas, { width: page.width, height: page.height });
  }
  window.addEventListener("resize", () => session.changed("view"));
  session.follow(location.hash);
  byId("loading", HTMLElement).hidden = true;
  await session.completeExamples();
}

/** Regions of one map of the top layer. @param {PageData} page */
function areaOfTop({ model, height, width }) {
  let [h, w] = [height, width];
  for (const { filterSize, poolSize, stride } of model.layers) {
    [h, w] = [h, w].map((n) => Math.max(0, Math.ceil((n + filterSize - 1 - poolSize) / stride)) + 1);
  }
  return h * w;
}

open().catch((error) => {
  byId("loading", HTMLElement).textContent = `The page could not start: ${error.message}`;
  throw error;
});
