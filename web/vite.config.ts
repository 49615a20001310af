// Builds the viewer into the Python package: one script and one style sheet with fixed names, so that
// palus.web.page can put both into a single HTML file, and BUILD.json, by which a test notices stale assets.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative, resolve, sep } from "node:path";
import { defineConfig, type Plugin } from "vite";

const root = import.meta.dirname;
const assets = resolve(root, "../src/palus/web/assets");

/** SHA-256 over the path and content of every source file, in the order of their paths. Mirrored by tests/web. */
function hashSources(): string {
  const files = [
    "package.json",
    "package-lock.json",
    "tsconfig.json",
    "vite.config.ts",
    ...readdirSync(join(root, "src"), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => relative(root, join(entry.parentPath, entry.name)).split(sep).join("/")),
  ].sort();
  const hash = createHash("sha256");
  for (const file of files) {
    hash
      .update(`${file}\0`)
      .update(readFileSync(join(root, file)))
      .update("\0");
  }
  return hash.digest("hex");
}

function buildRecord(): Plugin {
  return {
    name: "palus-build-record",
    apply: "build",
    closeBundle() {
      const fileHash = (name: string) =>
        createHash("sha256")
          .update(readFileSync(join(assets, name)))
          .digest("hex");
      const record = {
        sources_sha256: hashSources(),
        assets_sha256: { "viewer.css": fileHash("viewer.css"), "viewer.js": fileHash("viewer.js") },
      };
      writeFileSync(join(assets, "BUILD.json"), `${JSON.stringify(record, null, 2)}\n`);
    },
  };
}

export default defineConfig({
  root,
  plugins: [buildRecord()],
  build: {
    target: "es2022",
    outDir: assets,
    emptyOutDir: true,
    rollupOptions: {
      input: join(root, "src/main.ts"),
      output: { format: "iife", entryFileNames: "viewer.js", assetFileNames: "viewer[extname]" },
    },
    cssCodeSplit: false,
    modulePreload: false,
  },
});
