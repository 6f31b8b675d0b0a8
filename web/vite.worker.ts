import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Plugin } from "vite";

const publicDirectory = fileURLToPath(new URL("./public/", import.meta.url));
const ENTRY = "src/sw.ts";
const FILE = "sw.js";
/** Pages that are loaded later, but must open without a network: what one writes there waits and is sent. */
const KEPT_PAGES = ["ConversationPage", "SessionHeader"];

interface BuiltFile {
  type: "chunk" | "asset";
  fileName: string;
  code?: string;
  source?: string | Uint8Array;
  isEntry?: boolean;
  name?: string;
  imports?: string[];
  viteMetadata?: { importedCss?: Set<string> };
}

/**
 * Builds src/sw.ts as /sw.js and tells it what the first page is made of: the files to keep for a start without a
 * network, and a version that changes when anything that was built changes, so that browsers notice.
 */
export function serviceWorker(): Plugin {
  return {
    name: "quarterdeck-service-worker",
    apply: "build",
    config: () => ({
      build: {
        rolldownOptions: {
          input: { index: fileURLToPath(new URL("./index.html", import.meta.url)), sw: fileURLToPath(new URL(ENTRY, import.meta.url)) },
          output: { entryFileNames: (chunk: { name: string }) => (chunk.name === "sw" ? FILE : "assets/[name]-[hash].js") },
        },
      },
    }),
    generateBundle: {
      order: "post",
      handler(_options, bundle) {
        const files = Object.values(bundle as unknown as Record<string, BuiltFile>);
        const worker = files.find((file) => file.fileName === FILE);
        if (worker?.code === undefined) return this.error("the service worker was not built");
        if (worker.imports?.length) return this.error(`the service worker must stand alone, but imports ${worker.imports.join(", ")}`);
        const shell = JSON.stringify({ version: version(files), files: firstPage(files) });
        worker.code = `const __SHELL__=${shell};\n${worker.code}`;
      },
    },
  };
}

/** Of all that was built, the names of what is hashed by name and the text of what is not. */
function version(files: BuiltFile[]): string {
  const hash = createHash("sha256");
  for (const file of files.toSorted((one, other) => (one.fileName < other.fileName ? -1 : 1))) {
    hash.update(file.fileName);
    if (!file.fileName.startsWith("assets/")) hash.update(file.code ?? file.source ?? "");
  }
  for (const name of publicFiles()) hash.update(name).update(readFileSync(publicDirectory + name));
  return hash.digest("hex").slice(0, 12);
}

function publicFiles(): string[] {
  return readdirSync(publicDirectory).toSorted();
}

/** The page, the scripts it loads at once and their styles, and what the icons of an installed app need. */
function firstPage(files: BuiltFile[]): string[] {
  const chunks = new Map(files.map((file) => [file.fileName, file]));
  const found = new Set<string>(["index.html", "icon.svg", "icon-192.png", "badge-96.png", "manifest.webmanifest"]);
  const isWanted = (file: BuiltFile) => (file.isEntry ? file.fileName !== FILE : KEPT_PAGES.includes(file.name ?? ""));
  const waiting = files.filter((file) => file.type === "chunk" && isWanted(file)).map((file) => file.fileName);
  for (let name = waiting.pop(); name !== undefined; name = waiting.pop()) {
    if (found.has(name)) continue;
    found.add(name);
    const chunk = chunks.get(name);
    waiting.push(...(chunk?.imports ?? []));
    for (const style of chunk?.viteMetadata?.importedCss ?? []) found.add(style);
  }
  return [...found].map((name) => `/${name}`).toSorted();
}
