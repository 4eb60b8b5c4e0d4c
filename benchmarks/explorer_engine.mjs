// How long one joint step of the page's engine takes, by image, on one core:
//   python benchmarks/explorer_engine.py    writes the case, runs this under Node and keeps its raw output
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, path] = process.argv.slice(2);
const page = (name) => import(pathToFileURL(`${folder}/${name}`).href);
const { allWeights, networkOf, start, step } = await page("engine.js");
const { unpackModel } = await page("unpack.js");

const { model, height, width, images, settings } = JSON.parse(readFileSync(path, "utf8"));
const network = networkOf(unpackModel(model), height, width);

function infer(image) {
  const latents = start(network, image, settings);
  const weights = allWeights(network, latents.theta);
  const times = [];
  for (let t = 0; t < settings.steps; t++) {
    const before = performance.now();
    step(network, image, latents, weights, settings);
    times.push(performance.now() - before);
  }
  return times;
}

const digits = images.map((image) => Float64Array.from(image));
infer(digits[0]); // compiled by now
const milliseconds = digits.map(infer);
process.stdout.write(JSON.stringify({ node: process.version, milliseconds }));
