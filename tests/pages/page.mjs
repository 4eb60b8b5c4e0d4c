// Run a part of the page on the case in a JSON file and print what it found, for the tests to compare:
// node page.mjs formulas|convolutions|inference PAGE CASE
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [part, folder, path] = process.argv.slice(2);
const page = (name) => import(pathToFileURL(`${folder}/${name}`).href);

// The names that the formulas export, and what they compute: [name, rows], a row has the arguments of one call.
async function formulas(cases) {
  const found = await page("formulas.js");
  return { names: Object.keys(found), results: cases.map(([name, rows]) => rows.map((row) => found[name](...row))) };
}

const convolutions = (cases) => Promise.all(cases.map(convolution));

async function convolution({ below, maps, size, height, width, filters, connected, z, signal }) {
  const { convolveDown, convolveUp, filtersOf } = await page("convolution.js");
  const made = filtersOf(Float32Array.from(filters), Uint8Array.from(connected), below, maps, size, height, width);
  const [down, up] = [new Float64Array(signal.length).fill(NaN), new Float64Array(z.length).fill(NaN)];
  for (let again = 0; again < 2; again++) { // what the first time left behind must not matter
    convolveDown(Float64Array.from(z), made, down);
    convolveUp(Float64Array.from(signal), made, up);
  }
  return { down: Array.from(down), up: Array.from(up) };
}

async function inference({ model, height, width, image, settings }) {
  const { allWeights, descend, measure, networkOf, start, step } = await page("engine.js");
  const { toImage, toSignal } = await page("stage.js");
  const { unpackModel } = await page("unpack.js");
  const network = networkOf(unpackModel(model), height, width);
  const size = { channels: model.channels, height, width };
  const { signal: v, background } = toSignal(Float64Array.from(image), size, model.input);
  const latents = start(network, v, settings);
  const weights = allWeights(network, latents.theta);
  const plain = () => ({
    p: Array.from(latents.p),
    theta: latents.theta.map((t) => [t.muY, t.muX, t.gammaY, t.gammaX].map((a) => Array.from(a))),
  });
  const states = [plain()];
  const trace = [];
  for (let t = 0; t < settings.steps; t++) {
    trace.push(step(network, v, latents, weights, settings));
    if (t === 0) states.push(plain());
  }
  trace.push(measure(network, v, latents, settings));
  states.push(plain());
  const { pHat } = descend(network, latents.p, allWeights(network, latents.theta));
  const reconstruction = Array.from(toImage(pHat[0], background, size, model.input));
  return { states, trace, signal: Array.from(v), reconstruction };
}

const result = await { formulas, convolutions, inference }[part](JSON.parse(readFileSync(path, "utf8")));
process.stdout.write(JSON.stringify(result));
