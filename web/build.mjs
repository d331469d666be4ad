/** Builds the dashboard from `src` into the folder that the argument names. The same sources give the same bytes. */

import { cpSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const folder = process.argv[2];
if (!folder) throw new Error("usage: node build.mjs FOLDER");
rmSync(folder, { recursive: true, force: true });
const { metafile } = await build({
  absWorkingDir: import.meta.dirname,
  preserveSymlinks: true, // names chunks by the path under web/node_modules, not by where the cache lies
  entryPoints: ["src/main.tsx", "src/styles/main.css", "src/pages/test_call/audio/worklet.ts"],
  outdir: folder,
  bundle: true,
  splitting: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  minify: true,
  sourcemap: false,
  legalComments: "none",
  entryNames: "[name]",
  chunkNames: "[name]-[hash]",
  metafile: true,
});
for (const name of ["index.html", "icon.svg"]) cpSync(`${import.meta.dirname}/src/${name}`, `${folder}/${name}`);
writeFileSync(`${folder}/licences.txt`, licences(Object.keys(metafile.inputs)));

/** Name, version and licence text of each package that a source comes from. */
function licences(sources) {
  const found = sources.map((path) => /node_modules\/((@[^/]+\/)?[^/]+)\//.exec(path)?.[1]).filter((name) => name);
  return [...new Set(found)]
    .sort()
    .map((name) => {
      const place = `${import.meta.dirname}/node_modules/${name}`;
      const { version, license } = JSON.parse(readFileSync(`${place}/package.json`, "utf8"));
      return `${name} ${version} (${license})\n\n${readFileSync(`${place}/LICENSE`, "utf8").trim()}\n`;
    })
    .join("\n\n");
}
