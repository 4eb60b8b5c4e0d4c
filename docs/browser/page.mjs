// The page: it hands pixels to a worker and shows what comes back.
const byId = (id) => document.getElementById(id);
const MOST_PIXELS = 4e6; // more would need over 1 GB of memory
let worker;
let picture; // { bytes, width, height, name }
let number = 0; // of the latest task; answers to others are left out

function say(text) {
  byId("status").textContent = text;
}

function paint(canvas, bytes) {
  canvas.width = picture.width;
  canvas.height = picture.height;
  canvas.getContext("2d").putImageData(new ImageData(bytes, picture.width, picture.height), 0, 0);
  canvas.parentElement.hidden = false;
}

function showLevel(sigma) {
  byId("sigma").value = 255 * sigma;
  byId("level").textContent = `σ = ${(255 * sigma).toFixed(1)} of 255`;
}

function receive({ data }) {
  if (data.number !== number) return;
  if (data.sigma !== undefined) showLevel(data.sigma);
  if (data.share !== undefined) byId("progress").value = data.share;
  if (data.error !== undefined) {
    byId("progress").hidden = true;
    say(`The noise could not be removed: ${data.error}`);
  }
  if (data.clean !== undefined) {
    byId("progress").hidden = true;
    paint(byId("clean"), data.clean);
    byId("clean").toBlob((blob) => {
      URL.revokeObjectURL(byId("save").href);
      byId("save").href = URL.createObjectURL(blob);
      byId("save").download = `${picture.name.replace(/\.[^.]*$/, "")}-clean.png`;
      byId("save").hidden = false;
      say("Done. Move the noise level if too much or too little was removed.");
    });
  }
}

// Start removing noise; null: its level is estimated.
function start(sigma) {
  number += 1;
  worker?.terminate(); // of an earlier level
  worker = new Worker("denoise.mjs", { type: "module" });
  worker.onmessage = receive;
  worker.onerror = () => say("The denoiser could not be loaded.");
  byId("save").hidden = true;
  byId("progress").value = 0;
  byId("progress").hidden = false;
  say("Removing noise …");
  worker.postMessage({ number, sigma, bytes: picture.bytes, width: picture.width, height: picture.height });
}

async function open(file) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    say(`${file.name} is not a picture that this browser reads. Try PNG, JPEG or WebP.`);
    return;
  }
  if (bitmap.width * bitmap.height > MOST_PIXELS) {
    say(`${file.name} has ${bitmap.width} × ${bitmap.height} pixels. This page takes up to 4 million; \`whatwhere denoise\` takes more.`);
    return;
  }
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  const { data: bytes, width, height } = context.getImageData(0, 0, bitmap.width, bitmap.height);
  picture = { bytes, width, height, name: file.name };
  paint(byId("noisy"), bytes);
  byId("controls").hidden = false;
  start(null);
}

byId("file").addEventListener("change", (event) => {
  if (event.target.files.length) open(event.target.files[0]);
});
byId("drop").addEventListener("dragover", (event) => {
  event.preventDefault();
  byId("drop").classList.add("over");
});
byId("drop").addEventListener("dragleave", () => byId("drop").classList.remove("over"));
byId("drop").addEventListener("drop", (event) => {
  event.preventDefault();
  byId("drop").classList.remove("over");
  if (event.dataTransfer.files.length) open(event.dataTransfer.files[0]);
});
byId("sigma").addEventListener("input", (event) => showLevel(Number(event.target.value) / 255));
byId("sigma").addEventListener("change", (event) => start(Number(event.target.value) / 255));
byId("estimate").addEventListener("click", () => start(null));
