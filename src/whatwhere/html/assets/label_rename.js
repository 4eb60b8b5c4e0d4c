// A class gets another name or colour, joins another class, or loses its labels. Undo takes back what labels change.
import { byId, make } from "./dom.js";
import { CLASS_COLOURS, chooseColour, colourIndexOf } from "./label_colours.js";
import { counted, shared, tell } from "./label_state.js";

/** The rows that a person said are of a class. @param {string} name */
const rowsOf = (name) => {
  const number = shared.classes.indexOf(name);
  return Object.keys(shared.said).map(Number).filter((row) => shared.said[row] === number);
};

/** Open the dialog of a class. @param {string} name */
export function openRename(name) {
  const dialog = byId("rename", HTMLDialogElement);
  const rows = rowsOf(name);
  if (rows.length === 0) {
    tell(`${name} has no label of yours.`);
    return;
  }
  dialog.dataset.name = name;
  byId("rename-words", HTMLElement).textContent = `${name}: ${counted(rows.length, "label")}`;
  const input = byId("rename-name", HTMLInputElement);
  input.value = name;
  const radio = byId("rename-colours", HTMLElement).querySelectorAll("input")[colourIndexOf(name)];
  if (radio) radio.checked = true;
  dialog.showModal();
  input.select();
  showMerge();
}

/** Say whether the new name joins two classes. */
function showMerge() {
  const old = byId("rename", HTMLDialogElement).dataset.name ?? "";
  const name = byId("rename-name", HTMLInputElement).value.trim();
  const isMerge = name !== old && shared.classes.includes(name) && rowsOf(name).length > 0;
  byId("rename-give", HTMLElement).textContent = isMerge ? `Join ${name}` : "Rename";
  byId("rename-note", HTMLElement).textContent = isMerge ? `The labels of ${old} become ${name}.` : "A name that exists joins both classes.";
}

/** The words for the colours, in their order: a colour is not told by sight alone. */
const COLOUR_NAMES = ["blue", "orange", "green", "pink", "light blue", "red", "olive", "violet", "brown", "lime"];

/** A radio button for each colour; arrow keys move among them. @param {() => void} redraw */
function colourChoice(redraw) {
  const dialog = byId("rename", HTMLDialogElement);
  const radios = CLASS_COLOURS.map((colour, index) => {
    const radio = make("input", { type: "radio", name: "colour", "aria-label": COLOUR_NAMES[index], title: COLOUR_NAMES[index] });
    radio.style.setProperty("--hue", colour);
    radio.addEventListener("change", () => {
      chooseColour(dialog.dataset.name ?? "", index);
      redraw();
    });
    return radio;
  });
  byId("rename-colours", HTMLElement).append(...radios);
}

/**
 * @param {(rows: number[], name: string | null) => Promise<void>} say
 * @param {() => void} redraw shows everything in the colours as they are now
 */
export function renameDialog(say, redraw) {
  const dialog = byId("rename", HTMLDialogElement);
  colourChoice(redraw);
  byId("rename-name", HTMLInputElement).addEventListener("input", showMerge);
  byId("rename-form", HTMLFormElement).addEventListener("submit", (event) => {
    event.preventDefault();
    const old = dialog.dataset.name ?? "";
    const name = byId("rename-name", HTMLInputElement).value.trim();
    dialog.close();
    if (name === "" || name === old) return;
    if (!shared.classes.includes(name)) chooseColour(name, colourIndexOf(old));
    void say(rowsOf(old), name).then(() => tell(`${old} is ${name} now. Undo takes it back.`));
  });
  byId("rename-delete", HTMLButtonElement).addEventListener("click", () => {
    const old = dialog.dataset.name ?? "";
    dialog.close();
    void say(rowsOf(old), null).then(() => tell(`The labels of ${old} are removed. Undo takes it back.`));
  });
  byId("rename-close", HTMLButtonElement).addEventListener("click", () => dialog.close());
}
