// Builds into the Python package, in two steps. `vite build` makes the viewer: one script and one style sheet with
// fixed names, so that palus.web.page can put both into a single HTML file. `vite build --mode site` makes the pages of
// the arena: every *.html beside this file except viewer.html, with hashed scripts and styles under /static/.
// BUILD.json, written last, is how a test notices stale assets.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative, resolve, sep } from "node:path";
import { defineConfig, type Plugin, type UserConfig } from "vite";

const root = import.meta.dirname;
const assets = resolve(root, "../src/palus/web/assets");
const pages = readdirSync(root).filter((name) => name.endsWith(".html"));

/** The licence of a package that parts of the built assets are made of. */
function licence(name: string): string {
  return readFileSync(join(root, "node_modules", name, "LICENSE"), "utf-8");
}

/** Names what the assets contain besides our own code. */
function notices(): Plugin {
  return {
    name: "palus-notices",
    apply: "build",
    closeBundle() {
      const text = `site/static/three-view-*.js contains three.js.\n\n${licence("three")}`;
      writeFileSync(join(assets, "THIRD-PARTY-NOTICES.txt"), text);
    },
  };
}

function filesBelow(folder: string, base: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(base, join(entry.parentPath, entry.name)).split(sep).join("/"));
}

/**
 * SHA-256 over the path and content of every source file, in the order of their paths; declarations of types leave no
 * trace in what is built. Mirrored by tests/web.
 */
function hashSources(): string {
  const settings = ["package.json", "package-lock.json", "tsconfig.json", "vite.config.ts"];
  const files = [...settings, ...pages, ...filesBelow(join(root, "src"), root)];
  const hash = createHash("sha256");
  for (const file of files.filter((name) => !name.endsWith(".d.ts")).sort()) {
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
      const built = filesBelow(assets, assets)
        .filter((name) => name !== "BUILD.json")
        .sort();
      const record = {
        sources_sha256: hashSources(),
        assets_sha256: Object.fromEntries(built.map((name) => [name, fileHash(name)])),
      };
      writeFileSync(join(assets, "BUILD.json"), `${JSON.stringify(record, null, 2)}\n`);
    },
  };
}

const viewer: UserConfig = {
  root,
  plugins: [notices(), buildRecord()],
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
};

/** The 3-D view, three.js included, as one script; the site takes it in under a hashed name, single files inline it. */
const solid: UserConfig = {
  root,
  build: {
    target: "es2022",
    outDir: join(root, "build"),
    emptyOutDir: true,
    rollupOptions: {
      input: join(root, "src/three/main.ts"),
      // Its licence goes wherever the script goes.
      output: { format: "iife", entryFileNames: "three-view.js", postBanner: `/*! three.js\n${licence("three")}*/` },
    },
  },
};

const site: UserConfig = {
  root,
  plugins: [buildRecord()],
  build: {
    target: "es2022",
    outDir: join(assets, "site"),
    emptyOutDir: true,
    assetsDir: "static",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: { input: pages.filter((name) => name !== "viewer.html").map((name) => join(root, name)) },
  },
  // Pages name their parts from the top of the server; parts find each other wherever a static export puts them.
  experimental: {
    renderBuiltUrl: (name, { hostType }) => (hostType === "html" ? `/${name}` : { relative: true }),
  },
};

export default defineConfig(({ mode }) => (mode === "site" ? site : mode === "solid" ? solid : viewer));
