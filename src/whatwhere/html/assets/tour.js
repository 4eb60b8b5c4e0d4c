// A guided tour of a few steps: each points at a panel, says one thing, and lets it happen.
import { byId } from "./dom.js";

/** @typedef {{ target: string, title: string, text: string, act?: () => void }} Stop */

/** Set up the tour of a page. @param {Stop[]} stops */
export function tourGuide(stops) {
  const card = byId("tour", HTMLElement);
  let stop = -1;
  const leave = () => {
    document.querySelector(".toured")?.classList.remove("toured");
    card.hidden = true;
    stop = -1;
    byId("start-tour", HTMLButtonElement).focus();
  };
  /** @param {number} next */
  const go = (next) => {
    if (next >= stops.length) {
      leave();
      return;
    }
    stop = Math.max(0, next);
    const { target, title, text, act } = stops[stop];
    document.querySelector(".toured")?.classList.remove("toured");
    const panel = byId(target, HTMLElement);
    panel.classList.add("toured");
    act?.();
    byId("tour-title", HTMLElement).textContent = title;
    byId("tour-text", HTMLElement).textContent = text;
    byId("tour-count", HTMLElement).textContent = `${stop + 1} of ${stops.length}`;
    byId("tour-back", HTMLButtonElement).disabled = stop === 0;
    byId("tour-next", HTMLButtonElement).textContent = stop === stops.length - 1 ? "Done" : "Next";
    card.hidden = false;
    panel.scrollIntoView({ block: window.innerWidth < 760 ? "start" : "nearest", behavior: "auto" });
    byId("tour-next", HTMLButtonElement).focus({ preventScroll: true });
  };
  byId("start-tour", HTMLButtonElement).addEventListener("click", () => go(0));
  byId("tour-next", HTMLButtonElement).addEventListener("click", () => go(stop + 1));
  byId("tour-back", HTMLButtonElement).addEventListener("click", () => go(stop - 1));
  byId("tour-close", HTMLButtonElement).addEventListener("click", leave);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !card.hidden) leave();
  });
}
