// How much processor time one joint step of the page's engine takes, by image, the best of three runs: what else the
// machine does changes the clock on the wall, but hardly this.
//   python -m benchmarks.speed.explorer_engine    writes the case, runs this under Node and keeps its raw output
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
  const [before, clock] = [process.cpuUsage(), performance.now()];
  for (let t = 0; t < settings.steps; t++) step(network, image, latents, weights, settings);
  const { user, system } = process.cpuUsage(before);
  return { processor: (user + system) / 1000 / settings.steps, wall: (performance.now() - clock) / settings.steps };
}

const digits = images.map((image) => Float64Array.from(image));
const best = (runs) => runs.reduce((a, b) => (a.processor < b.processor ? a : b));
digits.slice(0, 4).forEach(infer); // compiled by now
const times = digits.map((image) => best([infer(image), infer(image), infer(image)]));
process.stdout.write(JSON.stringify({ node: process.version, milliseconds_a_step: times }));
