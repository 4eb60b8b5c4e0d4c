// "Try it": the classifier on new pictures, from files or from the camera.
import { byId, make } from "./dom.js";
import { colourOf } from "./label_colours.js";
import { inBase64, whenChosen, whenDropped } from "./label_drop.js";
import { ask, tell } from "./label_state.js";

const MOST = 3; // classes of a picture that are shown

/** @type {MediaStream | null} */ let camera = null;

/** Classify a picture, and show it with its class. @param {string} name @param {Blob} file */
async function tryPicture(name, file) {
  const found = await ask("try", { name, content: await inBase64(file) });
  if (found.failed) {
    byId("try-note", HTMLElement).textContent = found.failed === true ? "" : found.failed;
    return;
  }
  byId("try-note", HTMLElement).textContent = "";
  const picture = make("img", { src: URL.createObjectURL(file), alt: name });
  const [best] = found.classes;
  const bars = found.classes.slice(0, MOST).map((/** @type {string} */ one, /** @type {number} */ n) => {
    const bar = make("meter", { max: 100, value: found.shares[n], "aria-label": `${one}: ${found.shares[n]} %` });
    return make("p", { class: "try-bar" }, make("span", {}, one), bar, make("span", {}, `${found.shares[n]} %`));
  });
  const shown = make("div", { class: "tried" }, picture, make("div", {}, make("b", {}, best), ...bars));
  shown.style.setProperty("--hue", colourOf(best));
  byId("tried", HTMLElement).prepend(shown);
}

/** Open the camera, or take a picture with it. */
async function useCamera() {
  const video = byId("camera", HTMLVideoElement);
  if (camera === null) {
    try {
      camera = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    } catch {
      byId("try-note", HTMLElement).textContent = "No camera: there is none, or the browser may not use it.";
      return;
    }
    video.srcObject = camera;
    video.hidden = false;
    await video.play();
    byId("use-camera", HTMLElement).textContent = "Take the picture";
    return;
  }
  const canvas = make("canvas", { width: video.videoWidth, height: video.videoHeight });
  canvas.getContext("2d")?.drawImage(video, 0, 0);
  canvas.toBlob((blob) => void (blob && tryPicture("camera.png", blob)), "image/png");
}

function endCamera() {
  for (const track of camera?.getTracks() ?? []) track.stop();
  camera = null;
  byId("camera", HTMLVideoElement).hidden = true;
  byId("use-camera", HTMLElement).textContent = "Camera";
}

/** Set up the dialog. */
export function tryDialog() {
  const dialog = byId("try", HTMLDialogElement);
  /** @param {import("./label_drop.js").Dropped[]} files */
  const takeAll = async (files) => {
    for (const { name, file } of files) await tryPicture(name, file);
  };
  whenDropped(dialog, (files) => void takeAll(files));
  whenChosen(byId("try-files", HTMLInputElement), (files) => void takeAll(files));
  byId("use-camera", HTMLButtonElement).addEventListener("click", () => void useCamera());
  byId("try-open", HTMLButtonElement).addEventListener("click", () => {
    tell("");
    dialog.showModal();
  });
  byId("try-close", HTMLButtonElement).addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", endCamera);
}
