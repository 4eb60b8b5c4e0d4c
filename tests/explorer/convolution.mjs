// Apply the page's convolutions to the case in a JSON file and print the results, for `test_formulas_js.py` to compare.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, path] = process.argv.slice(2);
const { convolveDown, convolveUp, filtersOf } = await import(pathToFileURL(`${folder}/convolution.js`).href);

const { below, maps, size, height, width, filters, connected, z, signal } = JSON.parse(readFileSync(path, "utf8"));
const made = filtersOf(Float32Array.from(filters), Uint8Array.from(connected), below, maps, size, height, width);
const [down, up] = [new Float64Array(signal.length).fill(NaN), new Float64Array(z.length).fill(NaN)];
for (let again = 0; again < 2; again++) { // what the first time left behind must not matter
  convolveDown(Float64Array.from(z), made, down);
  convolveUp(Float64Array.from(signal), made, up);
}
process.stdout.write(JSON.stringify({ down: Array.from(down), up: Array.from(up) }));
