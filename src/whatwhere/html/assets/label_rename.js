// A class gets another name, joins another class, or loses its labels: one action, which undo takes back.
import { byId } from "./dom.js";
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

/** @param {(rows: number[], name: string | null) => Promise<void>} say */
export function renameDialog(say) {
  const dialog = byId("rename", HTMLDialogElement);
  byId("rename-name", HTMLInputElement).addEventListener("input", showMerge);
  byId("rename-form", HTMLFormElement).addEventListener("submit", (event) => {
    event.preventDefault();
    const old = dialog.dataset.name ?? "";
    const name = byId("rename-name", HTMLInputElement).value.trim();
    dialog.close();
    if (name === "" || name === old) return;
    void say(rowsOf(old), name).then(() => tell(`${old} is ${name} now. Undo takes it back.`));
  });
  byId("rename-delete", HTMLButtonElement).addEventListener("click", () => {
    const old = dialog.dataset.name ?? "";
    dialog.close();
    void say(rowsOf(old), null).then(() => tell(`The labels of ${old} are removed. Undo takes it back.`));
  });
  byId("rename-close", HTMLButtonElement).addEventListener("click", () => dialog.close());
}
