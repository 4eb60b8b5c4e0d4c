// Run the page's engine on the cases in a JSON file and print what it found, for `test_engine_js.py` to compare.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, path] = process.argv.slice(2);
const page = (name) => import(pathToFileURL(`${folder}/${name}`).href);
const { allWeights, descend, measure, networkOf, start, step } = await page("engine.js");
const { toImage, toSignal } = await page("stage.js");
const { unpackModel } = await page("unpack.js");

const { model, height, width, image, settings } = JSON.parse(readFileSync(path, "utf8"));
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
process.stdout.write(JSON.stringify({ states, trace, signal: Array.from(v), reconstruction }));
