// A guided tour of six steps: each points at a panel, says one thing, and lets it happen.
import { byId } from "./dom.js";

/** @typedef {import("./session.js").Session} Session */

/** @type {{ target: string, title: string, text: string, act?: (session: Session) => void }[]} */
const STOPS = [
  {
    target: "input-panel",
    title: "Give it an image",
    text: "Draw a digit here with mouse, pen or finger, or take one of the examples. Nothing leaves this page: the model runs in your browser.",
  },
  {
    target: "inference-panel",
    title: "Watch it being explained",
    text: "Inference starts with no features at all and lowers the cost step by step. Orange is what the explanation does not yet reproduce, blue is what its features cost. Drag over the curve to go back in time.",
    act: (session) => session.showStep(3),
  },
  {
    target: "code-panel",
    title: "What and where",
    text: "The digit is now a handful of features. Each has a colour and a number (what) and an ellipse that says at which place of its region it is drawn (where).",
    act: (session) => session.showStep(null),
  },
  {
    target: "code-panel",
    title: "Move one",
    text: "One feature is selected. Drag its ellipse, or pull its rim: the stroke it draws moves and widens. Scroll to make it stronger, press Delete to take it away.",
    act: (session) => {
      const first = session.active(session.top)[0];
      if (first) session.set({ layer: session.top, selected: first.j, feature: first.map }, "selection", "view");
    },
  },
  {
    target: "feature-panel",
    title: "Meet a feature",
    text: "This is what the selected feature has learned: its filters, what it draws alone, and 16 of its activations in other images, drawn at random.",
  },
  {
    target: "pair-panel",
    title: "Exchange the where",
    text: "Here two images meet: the features of A drawn with the places of B. Move the slider to go from one to the other. Copy the link to show somebody what you see.",
    act: (session) => {
      if (!session.state.other) session.set({ other: { example: Math.min(17, session.examples.count - 1) } }, "other");
    },
  },
];

/** @param {Session} session */
export function tourGuide(session) {
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
    if (next >= STOPS.length) return leave();
    stop = Math.max(0, next);
    const { target, title, text, act } = STOPS[stop];
    document.querySelector(".toured")?.classList.remove("toured");
    const panel = byId(target, HTMLElement);
    panel.classList.add("toured");
    act?.(session);
    byId("tour-title", HTMLElement).textContent = title;
    byId("tour-text", HTMLElement).textContent = text;
    byId("tour-count", HTMLElement).textContent = `${stop + 1} of ${STOPS.length}`;
    byId("tour-back", HTMLButtonElement).disabled = stop === 0;
    byId("tour-next", HTMLButtonElement).textContent = stop === STOPS.length - 1 ? "Done" : "Next";
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
