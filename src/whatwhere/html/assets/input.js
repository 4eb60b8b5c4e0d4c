// Panel "Image": draw, choose an example, drop or paste a file; undo and clear.
import { LEVELS } from "./address.js";
import { cropPanel } from "./crop.js";
import { byId, contextOf, make, pointerOn } from "./dom.js";
import { drawSome } from "./examples.js";
import { drawImage, pictureCanvas } from "./pictures.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./address.js").ImageChoice} ImageChoice */

const STRIP = 12; // examples offered at a time

/** @param {Session} session */
export function inputPanel(session) {
  const canvas = byId("draw", HTMLCanvasElement);
  const { size } = session;
  /** @type {ImageChoice[]} */ const history = [];
  const cursor = { x: Math.floor(size.width / 2), y: Math.floor(size.height / 2), shown: false };
  let erasing = false;

  const remember = () => {
    history.push(session.state.image);
    byId("undo", HTMLButtonElement).disabled = false;
  };
  /** @param {ImageChoice} image */
  const choose = (image) => {
    remember();
    session.setImage(image);
  };

  /** Paint a line of soft dots, in place of a pen. @param {{ x: number, y: number }} from @param {{ x: number, y: number }} to */
  const stroke = (from, to) => {
    const values = session.image.slice();
    const count = Math.max(1, Math.ceil(2 * Math.hypot(to.x - from.x, to.y - from.y)));
    for (let n = 0; n <= count; n++) {
      dab(values, session.size, from.x + ((to.x - from.x) * n) / count, from.y + ((to.y - from.y) * n) / count, erasing);
    }
    session.setImage({ levels: Uint8Array.from(values, (value) => Math.round(LEVELS * value)) });
  };

  /** @type {{ x: number, y: number } | null} */ let pen = null;
  /** @param {PointerEvent} event */
  const at = (event) => {
    const { x, y } = pointerOn(event, canvas);
    return { x: x * size.width - 0.5, y: y * size.height - 0.5 };
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    remember();
    cursor.shown = false;
    pen = at(event);
    stroke(pen, pen);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!pen) return;
    const next = at(event);
    stroke(pen, next);
    pen = next;
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => (pen = null));

  canvas.addEventListener("keydown", (event) => {
    const moves = /** @type {Record<string, number[]>} */ ({
      ArrowLeft: [-1, 0],
      ArrowRight: [1, 0],
      ArrowUp: [0, -1],
      ArrowDown: [0, 1],
    });
    if (!(event.key in moves) && event.key !== " ") return;
    event.preventDefault();
    const [dx, dy] = moves[event.key] ?? [0, 0];
    cursor.x = Math.min(size.width - 1, Math.max(0, cursor.x + dx));
    cursor.y = Math.min(size.height - 1, Math.max(0, cursor.y + dy));
    cursor.shown = true;
    if (event.key === " ") {
      remember();
      stroke(cursor, cursor);
    } else session.changed("image");
  });
  canvas.addEventListener("blur", () => {
    cursor.shown = false;
    session.changed("image");
  });

  const pen_ = byId("pen", HTMLButtonElement);
  const eraser = byId("eraser", HTMLButtonElement);
  /** @param {boolean} erase */
  const take = (erase) => {
    erasing = erase;
    pen_.setAttribute("aria-pressed", String(!erase));
    eraser.setAttribute("aria-pressed", String(erase));
  };
  pen_.addEventListener("click", () => take(false));
  eraser.addEventListener("click", () => take(true));
  byId("clear", HTMLButtonElement).addEventListener("click", () => {
    take(false);
    choose({ levels: new Uint8Array(session.pixels) });
  });
  byId("undo", HTMLButtonElement).addEventListener("click", () => {
    const image = history.pop();
    if (image) session.setImage(image);
    byId("undo", HTMLButtonElement).disabled = history.length === 0;
  });
  acceptFiles(session, choose);
  offerExamples(session, choose);
  byId("input-note", HTMLElement).textContent = session.isStrokes
    ? "Draw, choose an example, or drop or paste a picture. Inference runs while you draw."
    : "Choose an example, or drop or paste a picture. You can paint on it: inference runs meanwhile.";

  session.panels.push((changes) => {
    if (!changes.has("image") && !changes.has("scheme")) return;
    drawImage(canvas, session.image, size);
    if (!cursor.shown) return;
    const context = contextOf(canvas);
    context.fillStyle = "rgb(0 114 178 / 0.7)";
    context.fillRect(cursor.x, cursor.y, 1, 1);
  });
}

/**
 * One dot of ink, soft at its edge: as thick as a stroke of MNIST on an image of 28 pixels.
 * @param {Float64Array} values changed
 * @param {{ channels: number, height: number, width: number }} size
 * @param {number} x
 * @param {number} y
 * @param {boolean} erase
 */
function dab(values, { channels, height, width }, x, y, erase) {
  const radius = (1.55 * Math.min(height, width)) / 28 + (erase ? 0.8 : 0);
  for (let row = Math.max(0, Math.floor(y - radius - 1)); row <= Math.min(height - 1, y + radius + 1); row++) {
    for (let column = Math.max(0, Math.floor(x - radius - 1)); column <= Math.min(width - 1, x + radius + 1); column++) {
      const ink = Math.min(1, Math.max(0, radius + 0.5 - Math.hypot(column - x, row - y)));
      for (let c = 0; c < channels; c++) {
        const i = (c * height + row) * width + column;
        values[i] = erase ? Math.min(values[i], 1 - ink) : Math.max(values[i], ink);
      }
    }
  }
}

/**
 * A row of examples, of one class or of all, and others at a click.
 * @param {Session} session
 * @param {(image: ImageChoice) => void} choose
 */
function offerExamples(session, choose) {
  const { examples } = session;
  const strip = byId("examples", HTMLElement);
  const filter = byId("example-class", HTMLSelectElement);
  let seed = 0;
  const labels = [...new Set(examples.labels)].filter((label) => label !== null).sort((a, b) => Number(a) - Number(b));
  for (const label of labels) {
    filter.append(make("option", { value: String(label) }, examples.classes[Number(label)] ?? String(label)));
  }
  if (labels.length === 0) filter.hidden = true;
  const refill = () => {
    const all = Array.from({ length: examples.count }, (_, i) => i);
    const offered = all.filter((i) => filter.value === "" || String(examples.labels[i]) === filter.value);
    const shown = seed === 0 && filter.value === "" ? all.slice(0, STRIP) : drawSome(offered, STRIP, seed);
    strip.replaceChildren(
      ...shown.map((i) => {
        const label = examples.label(i) ? `Example ${i}, labelled ${examples.label(i)}` : `Example ${i}`;
        const picture = pictureCanvas(session.size, label);
        drawImage(picture, examples.image(i), session.size);
        return make("button", { class: "tile", title: label, onclick: () => choose({ example: i }) }, picture);
      }),
    );
  };
  filter.addEventListener("change", refill);
  byId("shuffle", HTMLButtonElement).addEventListener("click", () => {
    seed += 1;
    refill();
  });
  session.panels.push((changes) => {
    if (changes.has("scheme")) refill();
  });
}

/**
 * Files that are chosen, dropped or pasted become the image, scaled to its size; of photographs, a crop.
 * @param {Session} session
 * @param {(image: ImageChoice) => void} choose
 */
function acceptFiles(session, choose) {
  const message = byId("file-message", HTMLElement);
  const openCrop = cropPanel(session.size, (crop) => choose({ levels: readPicture(crop, session.size) }));
  /** @param {ArrayLike<File> | undefined} files the first that is a picture is taken */
  const take = async (files) => {
    const all = Array.from(files ?? []);
    const file = all.find(({ type }) => type.startsWith("image/")) ?? all[0];
    if (!file) return;
    try {
      const bitmap = await createImageBitmap(file);
      message.textContent = "";
      if (session.size.photograph) await openCrop(bitmap);
      else choose({ levels: readPicture(bitmap, session.size) });
    } catch {
      message.textContent = `${file.name} is not a picture that this browser can read (PNG, JPEG, GIF, WebP).`;
    }
  };
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    void take(event.dataTransfer?.files);
  });
  document.addEventListener("paste", (event) => void take(event.clipboardData?.files));
  const input = byId("file", HTMLInputElement);
  input.addEventListener("change", async () => {
    await take(input.files ?? undefined);
    input.value = "";
  });
}

/**
 * The levels of a picture, scaled to fit, or of a crop of a photograph. Dark ink on a bright ground is inverted where the
 * model explains grey images as they are, bright on black.
 * @param {ImageBitmap} bitmap
 * @param {import("./pictures.js").Size} size
 */
function readPicture(bitmap, { channels, height, width, photograph }) {
  const scale = Math.min(width / bitmap.width, height / bitmap.height);
  const [w, h] = [bitmap.width * scale, bitmap.height * scale];
  const context = contextOf(make("canvas", { width, height }));
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, (width - w) / 2, (height - h) / 2, w, h);
  const { data } = context.getImageData(0, 0, width, height);
  const area = width * height;
  const levels = new Uint8Array(channels * area);
  let sum = 0;
  for (let i = 0; i < area; i++) sum += (data[4 * i] + data[4 * i + 1] + data[4 * i + 2]) / 3;
  const invert = channels === 1 && !photograph && sum / (w * h) > 127;
  for (let i = 0; i < area; i++) {
    const rgb = [data[4 * i], data[4 * i + 1], data[4 * i + 2]];
    const shown = channels === 3 ? rgb : [(rgb[0] + rgb[1] + rgb[2]) / 3];
    const solid = data[4 * i + 3] / 255; // beyond the picture there is nothing
    shown.forEach((value, c) => {
      levels[c * area + i] = Math.round((LEVELS * solid * (invert ? 255 - value : value)) / 255);
    });
  }
  return levels;
}
