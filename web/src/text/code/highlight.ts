/** Colours for code, as classes. A worker finds them; very long texts are shown without. */
import type { CodeLine } from "./colour.ts";
import { languageOf } from "./languages.ts";

export type { CodeLine, CodeToken } from "./colour.ts";
export { languageOf, languageOfPath } from "./languages.ts";

/** More than this is shown plain: nobody waits so long for colours. */
export const HIGHLIGHT_MAX = 120_000;

/** A text to colour, or the number of one that is not wanted any more. */
export type ColourRequest = { id: number; code: string; language: string } | { id: number };

export interface ColourAnswer {
  id: number;
  lines?: CodeLine[];
  /** A grammar that fails costs colours and nothing else; the text is shown already. */
  error?: string;
}

let worker: Worker | undefined;
let next = 1;
const waiting = new Map<number, (lines: CodeLine[] | undefined) => void>();

function start(): Worker {
  const made = new Worker(new URL("./colour.worker.ts", import.meta.url), { type: "module", name: "colours" });
  made.onmessage = (event: MessageEvent<ColourAnswer>) => {
    const { id, lines } = event.data;
    waiting.get(id)?.(lines);
    waiting.delete(id);
  };
  // Without its worker code is shown in one colour; the next text tries again.
  made.onerror = () => {
    worker = undefined;
    for (const settle of waiting.values()) settle(undefined);
    waiting.clear();
  };
  return made;
}

function ask(code: string, language: string, signal: AbortSignal | undefined): Promise<CodeLine[] | undefined> {
  worker ??= start();
  const id = next++;
  return new Promise((resolve) => {
    waiting.set(id, resolve);
    worker?.postMessage({ id, code, language } satisfies ColourRequest);
    signal?.addEventListener("abort", () => {
      if (waiting.delete(id)) worker?.postMessage({ id } satisfies ColourRequest);
      resolve(undefined);
    });
  });
}

/** The lines of the code with their colours; nothing when the language is unknown, the code too long or not wanted any more. */
export async function highlight(code: string, language: string, signal?: AbortSignal): Promise<CodeLine[] | undefined> {
  const known = languageOf(language);
  if (!known || code.length > HIGHLIGHT_MAX || signal?.aborted) return undefined;
  if (import.meta.env.MODE === "test") {
    // Unit tests run where there are no workers.
    const { colour } = await import("./colour.ts");
    return colour(code, known, () => !signal?.aborted);
  }
  return ask(code, known, signal);
}

/** Puts colours into an element that shows the code already. */
export async function highlightElement(element: HTMLElement, language: string, signal: AbortSignal): Promise<void> {
  const lines = await highlight(element.textContent ?? "", language, signal);
  if (!lines || signal.aborted) return;
  const nodes: Node[] = [];
  lines.forEach((line, index) => {
    if (index > 0) nodes.push(document.createTextNode("\n"));
    for (const { text, className } of line) {
      if (className === "") {
        nodes.push(document.createTextNode(text));
        continue;
      }
      const span = document.createElement("span");
      span.className = className;
      span.textContent = text;
      nodes.push(span);
    }
  });
  element.replaceChildren(...nodes);
}
