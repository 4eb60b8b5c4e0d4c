// Which pictures are shown, and a class that is looked through: from the least to the most sure, to confirm many at once.
import { byId, make } from "./dom.js";
import { counted, shared, usedClasses } from "./label_state.js";

/** The class that is looked through, or null. */
function reviewedClass() {
  const { value } = byId("filter", HTMLSelectElement);
  return value.startsWith("class ") ? value.slice("class ".length) : null;
}

/** The rows that the filter shows, in its order. */
export function filteredRows() {
  const { value } = byId("filter", HTMLSelectElement);
  const rows = shared.names.map((_, row) => row);
  const lessSure = (/** @type {number} */ a, /** @type {number} */ b) => shared.certainty[a] - shared.certainty[b];
  if (value === "said") return rows.filter((row) => shared.said[row] !== undefined);
  if (value === "confused") {
    return rows.filter((row) => shared.said[row] === undefined && shared.confused.includes(shared.best[row])).sort(lessSure);
  }
  if (value === "suspects") return shared.suspects.map(({ row }) => row).filter((row) => shared.said[row] !== undefined);
  if (value === "unsure") return rows.filter((row) => shared.said[row] === undefined).sort(lessSure);
  const name = reviewedClass();
  if (name === null) return rows;
  const number = shared.classes.indexOf(name);
  const members = rows.filter((row) => shared.best[row] === number);
  const predicted = members.filter((row) => shared.said[row] === undefined).sort(lessSure);
  return [...predicted, ...members.filter((row) => shared.said[row] !== undefined)];
}

/** The class that is looked through, and its rows that would be confirmed; null if no class is. */
export function reviewedRows() {
  const name = reviewedClass();
  if (name === null || byId("grid", HTMLElement).hidden) return null;
  const least = Number(byId("surest", HTMLInputElement).value);
  const isSure = (/** @type {number} */ row) => shared.certainty[row] >= least;
  const rows = filteredRows().filter((row) => shared.said[row] === undefined && !shared.takenOut.has(row) && isSure(row));
  return { name, rows };
}

/** Show what is looked through. @param {boolean} [isGrid] */
export function showReview(isGrid = !byId("grid", HTMLElement).hidden) {
  const name = reviewedClass();
  const bar = byId("review", HTMLElement);
  bar.hidden = name === null || !isGrid;
  if (name === null) return;
  const open = filteredRows().filter((row) => shared.said[row] === undefined);
  const out = open.filter((row) => shared.takenOut.has(row)).length;
  const least = Number(byId("surest", HTMLInputElement).value);
  const confirmed = open.filter((row) => !shared.takenOut.has(row) && shared.certainty[row] >= least).length;
  byId("surest-words", HTMLElement).textContent = least === 0 ? "all" : `≥ ${least} %`;
  const words = byId("review-words", HTMLElement);
  words.textContent =
    open.length === 0
      ? `Every picture of ${name} has a label.`
      : `${name}, the least sure first. Click what is wrong; a second click puts it back. To look at a picture only, point at it and press z.`;
  const button = byId("confirm", HTMLButtonElement);
  button.hidden = open.length === 0;
  button.disabled = confirmed === 0;
  button.textContent = `Confirm ${counted(confirmed, "picture")} as ${name}`;
  byId("taken-out", HTMLElement).textContent = out > 0 ? `${out} taken out` : "";
}

/** The choices of the filter. */
export function showFilter() {
  const filter = byId("filter", HTMLSelectElement);
  const { value } = filter;
  const kinds = [["all", "all"], ["unsure", "unsure first"], ["said", "labelled"]];
  if (shared.suspects.length > 0) kinds.push(["suspects", `labels that look wrong (${shared.suspects.length})`]);
  if (shared.confused.length > 0) kinds.push(["confused", "in doubt between two"]);
  const classes = usedClasses().map((name) => [`class ${name}`, `class ${name}`]);
  const choices = [...kinds, ...classes];
  filter.replaceChildren(...choices.map(([value, text]) => make("option", { value }, text)));
  filter.value = choices.some(([one]) => one === value) ? value : "all";
}

/** Only the grid has an order. */
export const isOrdered = () => ["unsure", "suspects", "confused"].includes(byId("filter", HTMLSelectElement).value);

/**
 * @param {() => void} showView
 * @param {() => void} showGrid instead of the map
 */
export function reviewPanel(showView, showGrid) {
  byId("surest", HTMLInputElement).addEventListener("input", () => showReview());
  byId("filter", HTMLSelectElement).addEventListener("change", () => {
    shared.takenOut.clear();
    byId("surest", HTMLInputElement).value = "0";
    byId("grid", HTMLElement).scrollTop = 0;
    if (isOrdered()) showGrid();
    else showView();
  });
}
