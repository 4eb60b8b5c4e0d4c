// Panel "Reconstruction": what the code draws, what it leaves over, and the active features as a list of tiles.
import { byId, make, short } from "./dom.js";
import { tileOf } from "./plane.js";
import { drawImage, drawParts, drawResidual } from "./pictures.js";

/** @typedef {import("./session.js").Session} Session */

const LISTED = 48;

/** @param {Session} session */
export function outcomePanel(session) {
  const [input, reconstruction, residual, coloured] = ["shown-input", "reconstruction", "residual", "coloured"].map((id) =>
    byId(id, HTMLCanvasElement),
  );
  const list = byId("active", HTMLElement);
  let late = 0;
  byId("weakest", HTMLInputElement).addEventListener("input", (event) => {
    session.weakest = Number(/** @type {HTMLInputElement} */ (event.target).value);
    byId("weakest-value", HTMLElement).textContent = session.weakest === 0 ? "" : `${Math.round(100 * session.weakest)} %`;
    session.changed("view");
  });
  for (const word of document.querySelectorAll(".substance")) word.textContent = session.substance;
  session.panels.push((changes) => {
    if (changes.has("image") || changes.has("scheme")) drawImage(input, session.image, session.size);
    if (!changes.has("latents") && !changes.has("selection") && !changes.has("scheme") && !changes.has("view")) return;
    drawImage(reconstruction, session.reconstruction(), session.size);
    drawResidual(residual, session.error(), session.inkSize, session.fullInk);
    drawParts(coloured, session.parts(session.state.layer), session.inkSize, session.fullInk);
    const e = session.error();
    const left = e.reduce((sum, value) => sum + value * value, 0);
    const all = session.signal.reduce((sum, value) => sum + value * value, 0);
    byId("explained", HTMLElement).textContent =
      all > 0 ? `${(100 * Math.max(0, 1 - left / all)).toFixed(0)} % of the ${session.substance} is explained` : "";
    const count = session.activeCount(session.top);
    byId("feature-count", HTMLElement).textContent = `${count} feature${count === 1 ? "" : "s"}`;
    const { layer } = session.state;
    const ofLayer = session.activeCount(layer);
    byId("active-count", HTMLElement).textContent = `${ofLayer} active feature${ofLayer === 1 ? "" : "s"} of layer ${layer}`;
    // before the first step nothing is drawn yet: what is shown is only where drawing begins
    const isWaiting = session.running && session.trace.length < 2;
    for (const canvas of [reconstruction, coloured, residual]) canvas.classList.toggle("waiting", isWaiting);
    clearTimeout(late); // tiles take longer than a frame: they follow when the hand rests
    late = window.setTimeout(() => listTiles(list, session), 60);
  });
}

/** @param {HTMLElement} list @param {Session} session */
function listTiles(list, session) {
  const { layer, selected } = session.state;
  const focused = list.contains(document.activeElement) ? document.activeElement?.getAttribute("data-j") : null;
  const active = session.active(layer);
  list.replaceChildren(
    ...active.slice(0, LISTED).map(({ j, map, row, column, value }) => {
      const tile = tileOf(session, layer, j, row, column, session.colours[layer - 1][map]);
      tile.setAttribute("aria-hidden", "true");
      const button = make(
        "button",
        {
          class: "tile",
          "data-j": String(j),
          "aria-pressed": String(j === selected),
          "aria-label": `Feature of map ${map + 1} in row ${row + 1}, column ${column + 1}, ${short(value)}`,
          onclick: () => session.set({ selected: j === session.state.selected ? null : j, feature: map }, "selection"),
        },
        tile,
        make("span", {}, String(map + 1)),
      );
      return button;
    }),
  );
  const [count, listed] = [session.activeCount(layer), Math.min(LISTED, active.length)];
  byId("active-note", HTMLElement).textContent = count > listed ? `The ${listed} largest are shown.` : "";
  if (focused) /** @type {HTMLElement | null} */ (list.querySelector(`[data-j="${focused}"]`))?.focus();
}
