import { fileURLToPath } from "node:url";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig, type Plugin } from "vite";
import { serviceWorker } from "./vite.worker.ts";

const clientLibrary = fileURLToPath(new URL("../clients/typescript/src/index.ts", import.meta.url));
/** Where `npm run dev` finds a hub: QD_URL=http://127.0.0.1:PORT. */
const hub = process.env["QD_URL"] ?? "http://127.0.0.1:7433";

/** The service worker is a file of its own that imports nothing. */
function isOfWorker(id: string): boolean {
  return /\/src\/(sw|push\/(notification|renew))\.ts$/.test(id);
}

/**
 * Of marked the app uses what reads Markdown, not what writes HTML. That one would go by itself, but for a ready-made
 * parser at the end of the file, which nothing here imports and no bundler dares to leave out.
 */
function withoutReadyParser(): Plugin {
  return {
    name: "quarterdeck-marked",
    apply: "build",
    transform: {
      filter: { id: /\/marked\/lib\/marked\.esm\.js$/ },
      handler(code) {
        const shorter = code.replace(/var (\w+)=new \w+;function \w+\(\w+,\w+\)\{return \1\.parse\([^]*(?=export\{)/, "");
        if (shorter === code) this.warn("marked has changed: its parser of HTML is loaded though nothing uses it");
        const wanted = (names: string) => names.split(",").filter((name) => / as (Lexer|Tokenizer)$/.test(name)).join(",");
        return shorter.replace(/export\{([^}]*)\}/, (_, names: string) => `export{${wanted(names)}}`);
      },
    },
  };
}

export default defineConfig({
  plugins: [svelte(), serviceWorker(), withoutReadyParser()],
  resolve: { alias: { "@quarterdeck/client": clientLibrary } },
  build: {
    target: "es2022",
    sourcemap: false,
    // The policy of the hub forbids inline scripts and data: URLs of scripts.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 700,
    // What every page needs is one file: it packs better than twenty small ones, and comes in one go.
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: "app", tags: ["$initial"], test: (id) => !isOfWorker(id) }] } } },
  },
  // The worker that colours code loads each grammar when it is needed.
  worker: { format: "es" },
  server: {
    host: "127.0.0.1",
    proxy: Object.fromEntries(
      ["/api", "/auth", "/ws", "/login", "/logout", "/healthz"].map((path) => [path, { target: hub, ws: true }]),
    ),
  },
});
