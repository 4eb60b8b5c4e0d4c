// A line under the image says if it is of another kind than those that the model learned from.
import { byId } from "./dom.js";
import { Kind } from "./kind.js";

/** @typedef {import("./session.js").Session} Session */

/** @param {Session} session */
export function kindPanel(session) {
  /** @type {Kind | null} */ let kind = null;
  session.panels.push((changes) => {
    if (!changes.has("image")) return;
    const isExample = "example" in session.state.image;
    if (!isExample && kind === null) {
      kind = new Kind(Array.from({ length: session.examples.count }, (_, n) => session.examples.image(n)), session.size);
    }
    const isOther = !isExample && kind !== null && kind.isOther(session.image);
    byId("kind", HTMLElement).textContent = isOther
      ? "This image is of another kind than the examples: other shades, other edges. However much of it is explained, the features were not learned for it."
      : "";
  });
}
