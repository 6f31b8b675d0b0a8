/** The worker that colours code, one text after the other. */
import { colour } from "./colour.ts";
import type { ColourAnswer, ColourRequest } from "./highlight.ts";

const unwanted = new Set<number>();
let turn: Promise<void> = Promise.resolve();

async function answer({ id, code, language }: Extract<ColourRequest, { code: string }>): Promise<void> {
  const result: ColourAnswer = { id };
  try {
    const lines = unwanted.has(id) ? undefined : await colour(code, language, () => !unwanted.has(id));
    if (lines) result.lines = lines;
  } catch (error) {
    result.error = error instanceof Error ? error.message : String(error);
  }
  unwanted.delete(id);
  postMessage(result);
}

addEventListener("message", (event: MessageEvent<ColourRequest>) => {
  const request = event.data;
  if ("code" in request) turn = turn.then(() => answer(request));
  else unwanted.add(request.id);
});
