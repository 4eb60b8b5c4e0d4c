// The class that is armed follows the pointer, so that whoever clicks sees what the click does.
import { byId } from "./dom.js";
import { colourOf } from "./label_colours.js";
import { shared } from "./label_state.js";

/** Show the armed class, or nothing. */
export function showPointer() {
  const chip = byId("at-pointer", HTMLElement);
  chip.hidden = shared.armed === null;
  if (shared.armed === null) return;
  chip.textContent = shared.armed;
  chip.style.setProperty("--hue", colourOf(shared.armed));
}

/** Let it follow the pointer. */
export function followPointer() {
  document.addEventListener("pointermove", ({ clientX, clientY, pointerType }) => {
    if (shared.armed === null) return;
    const chip = byId("at-pointer", HTMLElement);
    chip.classList.toggle("away", pointerType === "touch"); // a finger covers it; the bar at the bottom names the class
    const left = Math.min(clientX + 14, window.innerWidth - chip.offsetWidth - 4);
    chip.style.transform = `translate(${left}px, ${Math.min(clientY + 16, window.innerHeight - 30)}px)`;
  });
}
