// Panel "Image", for models of photographs: which part of a picture that was dropped is taken.
import { byId, contextOf, pointerOn } from "./dom.js";

const LARGEST_SIDE = 480; // of the overview, in pixels of the canvas

/**
 * Shows a picture and lets one choose a square, or what shape the model's images have.
 * @param {import("./pictures.js").Size} size of the model's images
 * @param {(crop: ImageBitmap) => void} take
 * @returns {(picture: ImageBitmap) => Promise<void>} opens it for a picture
 */
export function cropPanel({ height, width }, take) {
  const canvas = byId("crop-picture", HTMLCanvasElement);
  const slider = byId("crop-size", HTMLInputElement);
  /** @type {ImageBitmap | null} */ let picture = null;
  const centre = { x: 0.5, y: 0.5 }; // as a share of the picture
  let asked = 0;

  /** The crop in pixels of the picture: as large as the slider says, inside it. @param {ImageBitmap} from */
  const box = (from) => {
    const zoom = Number(slider.value) * Math.min(from.width / width, from.height / height);
    const [w, h] = [zoom * width, zoom * height];
    const inside = (/** @type {number} */ at, /** @type {number} */ all, /** @type {number} */ own) =>
      Math.min(all - own, Math.max(0, at * all - own / 2));
    return { x: inside(centre.x, from.width, w), y: inside(centre.y, from.height, h), w, h };
  };

  const show = async () => {
    if (!picture) return;
    const { x, y, w, h } = box(picture);
    const scale = Math.min(1, LARGEST_SIDE / Math.max(picture.width, picture.height));
    [canvas.width, canvas.height] = [picture.width * scale, picture.height * scale];
    const context = contextOf(canvas);
    context.drawImage(picture, 0, 0, canvas.width, canvas.height);
    context.fillStyle = "rgb(0 0 0 / 0.5)";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(picture, x, y, w, h, x * scale, y * scale, w * scale, h * scale);
    byId("crop-size-value", HTMLElement).textContent = `${Math.round(w)} × ${Math.round(h)}`;
    const mine = ++asked;
    const crop = await createImageBitmap(picture, x, y, Math.max(1, w), Math.max(1, h));
    if (mine === asked) take(crop);
  };

  /** @param {PointerEvent} event */
  const drag = (event) => {
    if (event.buttons !== 1) return;
    Object.assign(centre, pointerOn(event, canvas));
    void show();
  };
  canvas.addEventListener("pointerdown", drag);
  canvas.addEventListener("pointermove", drag);
  canvas.addEventListener("keydown", (event) => {
    const moves = /** @type {Record<string, number[]>} */ ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] });
    if (!(event.key in moves)) return;
    event.preventDefault();
    centre.x = Math.min(1, Math.max(0, centre.x + 0.02 * moves[event.key][0]));
    centre.y = Math.min(1, Math.max(0, centre.y + 0.02 * moves[event.key][1]));
    void show();
  });
  slider.addEventListener("input", () => void show());
  return async (opened) => {
    picture = opened;
    Object.assign(centre, { x: 0.5, y: 0.5 });
    slider.value = "1";
    byId("crop", HTMLElement).hidden = false;
    await show();
  };
}
