import { fileURLToPath } from "node:url";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";
import { serviceWorker } from "./vite.worker.ts";

const clientLibrary = fileURLToPath(new URL("../clients/typescript/src/index.ts", import.meta.url));
/** Where `npm run dev` finds a hub: QD_URL=http://127.0.0.1:PORT. */
const hub = process.env["QD_URL"] ?? "http://127.0.0.1:7710";

/** The service worker is a file of its own that imports nothing. */
function isOfWorker(id: string): boolean {
  return /\/src\/(sw|push\/(notification|renew))\.ts$/.test(id);
}

export default defineConfig({
  plugins: [svelte(), serviceWorker()],
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
