// Export and import: files that the browser downloads, folders that the server writes, labels made elsewhere.
import { byId } from "./dom.js";
import { ask, tell } from "./label_state.js";

/**
 * @param {(work: () => Promise<void>) => Promise<void>} afterwards does something when all that was asked for before is done
 * @param {(state: any) => void} take a new state
 */
export function exchangePanel(afterwards, take) {
  const menu = byId("exchange", HTMLDetailsElement);
  /** @param {boolean} links */
  const writeFolders = async (links) => {
    menu.open = false;
    tell("Writing the folders …");
    const { saved } = await ask("folders", { links });
    if (saved) tell(`Written: ${saved}`);
  };
  byId("export-copies", HTMLButtonElement).addEventListener("click", () => void afterwards(() => writeFolders(false)));
  byId("export-links", HTMLButtonElement).addEventListener("click", () => void afterwards(() => writeFolders(true)));
  const input = byId("import-file", HTMLInputElement);
  /** @param {File} file */
  const importLabels = async (file) => {
    menu.open = false;
    const state = await ask("import", { name: file.name, text: await file.text() });
    input.value = "";
    if (state.failed) return;
    take(state);
    tell(`${file.name}: ${state.imported}`);
  };
  input.addEventListener("change", () => {
    const [file] = input.files ?? [];
    if (file) void afterwards(() => importLabels(file));
  });
  document.addEventListener("click", (event) => {
    if (event.target instanceof Node && !menu.contains(event.target)) menu.open = false;
  });
}
