// What a label changed, in words.
import { counted } from "./label_state.js";

/** @param {import("./label_state.js").Change} change */
export function changeWords({ labels, pictures, before, after, cause }) {
  if (cause === "" && labels === 0) return "";
  const parts = [`${counted(pictures, "picture")} changed`];
  if (after !== null) parts.push(before === null ? `about ${percent(after)} % wrong` : `about ${percent(before)} → ${percent(after)} % wrong`);
  const first = cause === "" ? `+${counted(labels, "label")}` : cause;
  return `${first}: ${parts.join(", ")}`;
}

/** @param {number} share */
const percent = (share) => Math.round(100 * share);
