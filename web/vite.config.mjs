// One script and one style, into the package; `sources.sha256` says of which sources.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { defineConfig } from "vite";

const root = import.meta.dirname;
const out = process.env.VIEWER_OUT ?? join(root, "..", "src", "edgewise", "viewer", "assets");

/** The hash of everything that the build reads, by path and content. */
function hashOfSources() {
  const files = ["package.json", "package-lock.json", "tsconfig.json", "vite.config.mjs"].map((f) => join(root, f));
  for (const entry of readdirSync(join(root, "src"), { recursive: true, withFileTypes: true }))
    if (entry.isFile()) files.push(join(entry.parentPath, entry.name));
  const named = files.map((f) => [relative(root, f).split(sep).join("/"), f]).sort((a, b) => (a[0] < b[0] ? -1 : 1));
  const hash = createHash("sha256");
  for (const [name, file] of named) hash.update(name).update("\0").update(readFileSync(file)).update("\0");
  return hash.digest("hex");
}

export default defineConfig({
  root,
  build: {
    outDir: out,
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    lib: { entry: join(root, "src", "main.ts"), formats: ["iife"], name: "EdgewiseViewer", fileName: () => "viewer.js", cssFileName: "viewer" },
  },
  plugins: [{ name: "hash-of-sources", closeBundle: () => writeFileSync(join(out, "sources.sha256"), hashOfSources() + "\n") }],
});
