// On a phone, a bar at the bottom: the chosen picture and the classes, within reach of the grid and of the suggestions.
import { byId, make } from "./dom.js";
import { enterField, onClick } from "./label_classes.js";
import { colourOf } from "./label_colours.js";
import { smallPicture } from "./label_small.js";
import { counted, shared, usedClasses, wordsOf } from "./label_state.js";

let classesAreSeen = true;

/** The bar is there while a picture is chosen, or a class is pressed, and the panel with the classes is out of sight. */
function showBar() {
  const isUsed = shared.chosen.size > 0 || shared.armed !== null;
  byId("reach", HTMLElement).hidden = classesAreSeen || !isUsed;
}

/** Show what is chosen, and the classes. @param {(name: string) => void} give a class to the chosen pictures */
export function showReach(give) {
  const none = shared.page.noneOfThese;
  const names = [...usedClasses().filter((name) => name !== none), none];
  const buttons = names.map((name) => {
    const isPressed = String(shared.armed === name);
    const button = make("button", { class: "reach-class", "aria-pressed": isPressed, onclick: onClick(() => give(name)) }, name);
    button.style.setProperty("--hue", colourOf(name));
    return button;
  });
  byId("reach-classes", HTMLElement).replaceChildren(...buttons);
  byId("reach-words", HTMLElement).textContent = reachWords();
  const picture = shared.chosen.size > 0 ? [smallPicture(shared.current)] : [];
  byId("reach-picture", HTMLElement).replaceChildren(...picture);
  showBar();
}

function reachWords() {
  const count = shared.chosen.size;
  if (shared.armed !== null) return `Every picture that you click: ${shared.armed}`;
  if (count === 0) return "";
  return count === 1 ? wordsOf(shared.current) : counted(count, "picture");
}

/** Set up the bar. */
export function reachBar() {
  byId("reach-name", HTMLButtonElement).addEventListener("click", () => enterField(""));
  const observer = new IntersectionObserver((entries) => {
    classesAreSeen = entries[entries.length - 1].isIntersecting;
    showBar();
  });
  observer.observe(byId("classes", HTMLElement));
}
