// Print the names that the page's formulas export, and what they compute in the cases of a JSON file.
// A case is [name, rows]: every row has the arguments of one call.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, path] = process.argv.slice(2);
const formulas = await import(pathToFileURL(`${folder}/formulas.js`).href);
const results = JSON.parse(readFileSync(path, "utf8")).map(([name, rows]) => rows.map((row) => formulas[name](...row)));
process.stdout.write(JSON.stringify({ names: Object.keys(formulas), results }));
