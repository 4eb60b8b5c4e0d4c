// Files and folders that are dropped on the page, and what is sent of them.
import { byId } from "./dom.js";
import { ask, counted, tell } from "./label_state.js";

const PICTURES = /\.(png|jpe?g|tiff?|bmp|gif|webp|pgm|ppm)$/i;

/** @typedef {{ name: string, file: File }} Dropped with the folders that it lies in */

/** The bytes of a file in base64. @param {Blob} file */
export async function inBase64(file) {
  const reader = new FileReader();
  await new Promise((resolve, reject) => {
    reader.onload = resolve;
    reader.onerror = reject;
    reader.readAsDataURL(file);
  });
  return String(reader.result).split(",")[1] ?? "";
}

/** All files of a dropped file or folder. @param {any} entry @param {string} folder @returns {Promise<Dropped[]>} */
async function filesOf(entry, folder = "") {
  const name = `${folder}${entry.name}`;
  if (entry.isFile) return [{ name, file: await new Promise((resolve, reject) => entry.file(resolve, reject)) }];
  const reader = entry.createReader();
  const found = [];
  for (;;) { // a reader gives some entries at a time
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (some.length === 0) break;
    for (const one of some) found.push(...(await filesOf(one, `${name}/`)));
  }
  return found;
}

/** What was dropped. @param {DataTransfer} transfer @returns {Promise<Dropped[]>} */
async function droppedFiles(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter((one) => one);
  if (entries.length === 0) return [...transfer.files].map((file) => ({ name: file.name, file }));
  return (await Promise.all(entries.map((entry) => filesOf(entry)))).flat();
}

/** Call a function with what is dropped on an element. @param {HTMLElement} place @param {(files: Dropped[]) => void} take */
export function whenDropped(place, take) {
  place.addEventListener("dragover", (event) => {
    event.preventDefault();
    place.classList.add("over");
  });
  place.addEventListener("dragleave", () => place.classList.remove("over"));
  place.addEventListener("drop", (event) => {
    event.preventDefault();
    place.classList.remove("over");
    if (event.dataTransfer) void droppedFiles(event.dataTransfer).then(take);
  });
}

/** Call a function with what is chosen by a field for files. @param {HTMLInputElement} input @param {(files: Dropped[]) => void} take */
export function whenChosen(input, take) {
  input.addEventListener("change", () => {
    take([...(input.files ?? [])].map((file) => ({ name: file.webkitRelativePath || file.name, file })));
    input.value = "";
  });
}

/** Send pictures, and begin the session on them. @param {Dropped[]} files @returns {Promise<boolean>} whether it began */
async function sendAll(files) {
  const pictures = files.filter(({ name }) => PICTURES.test(name));
  if (pictures.length < 2) {
    tell(`Got ${counted(pictures.length, "picture")}; expected at least two. Drop a folder of pictures, or several files.`);
    return false;
  }
  for (const [sent, { name, file }] of pictures.entries()) {
    byId("stage", HTMLElement).textContent = `Reading ${counted(pictures.length, "picture")} …`;
    byId("share", HTMLProgressElement).value = sent / pictures.length;
    const answer = await ask("drop", { name, content: await inBase64(file) });
    if (answer.failed) return false;
  }
  return !(await ask("begin", {})).failed;
}

/** Let pictures be dropped, until a session on them begins. @param {string} folder that keeps them */
export async function dropZone(folder) {
  const zone = byId("drop", HTMLElement);
  byId("drop-folder", HTMLElement).textContent = `They are kept in the folder ${folder}.`;
  zone.hidden = false;
  byId("share", HTMLElement).hidden = true;
  byId("stage", HTMLElement).textContent = "";
  document.body.setAttribute("aria-busy", "false");
  await new Promise((resolve) => {
    /** @param {Dropped[]} files */
    const take = async (files) => {
      zone.inert = true;
      byId("share", HTMLElement).hidden = false;
      if (await sendAll(files)) resolve(null);
      zone.inert = false;
      byId("share", HTMLElement).hidden = true;
    };
    whenDropped(document.body, (files) => void take(files));
    for (const id of ["drop-files", "drop-whole"]) whenChosen(byId(id, HTMLInputElement), (files) => void take(files));
  });
  zone.hidden = true;
  byId("share", HTMLElement).hidden = false;
  document.body.setAttribute("aria-busy", "true");
}
