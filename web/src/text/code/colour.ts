/** Finds the colours of code. Runs in a worker: grammars and regular expressions take longer than a frame has. */
import type { GrammarState, HighlighterCore } from "shiki/core";
import { loaders } from "./grammars.ts";

export interface CodeToken {
  text: string;
  /** `tok-keyword`…, empty for plain text. */
  className: string;
}

export type CodeLine = CodeToken[];

const LINE_MAX = 1_000;
const LINES_PER_PIECE = 200;
const THEME = "quarterdeck";
let engine: Promise<HighlighterCore> | undefined;
const loading = new Map<string, Promise<void>>();

async function makeEngine(): Promise<HighlighterCore> {
  const [{ createCssVariablesTheme, createHighlighterCore }, { createJavaScriptRegexEngine }] = await Promise.all([
    import("shiki/core"),
    import("shiki/engine/javascript"),
  ]);
  return createHighlighterCore({
    themes: [createCssVariablesTheme({ name: THEME, variablePrefix: "--", fontStyle: false })],
    langs: [],
    engine: createJavaScriptRegexEngine({ forgiving: true }),
  });
}

async function ready(language: string): Promise<HighlighterCore> {
  engine ??= makeEngine();
  const highlighter = await engine;
  let load = loading.get(language);
  if (!load) {
    load = loaders[language]?.().then((grammar) => highlighter.loadLanguage(grammar.default)) ?? Promise.resolve();
    loading.set(language, load);
  }
  await load;
  return highlighter;
}

/** `var(--token-keyword)` → `tok-keyword`; the plain colour has no class. */
function classOf(color: string | undefined): string {
  const name = /--token-([a-z-]+)/.exec(color ?? "")?.[1];
  return name ? `tok-${name}` : "";
}

/** The lines of the code, each in coloured pieces. `isWanted` is asked between pieces of a long text. */
export async function colour(code: string, language: string, isWanted: () => boolean): Promise<CodeLine[] | undefined> {
  const highlighter = await ready(language);
  const source = code.split("\n");
  const lines: CodeLine[] = [];
  let state: GrammarState | undefined;
  for (let at = 0; at < source.length; at += LINES_PER_PIECE) {
    // Words that somebody has changed their mind are heard between two pieces.
    if (at > 0) await new Promise((resolve) => setTimeout(resolve, 0));
    if (!isWanted()) return undefined;
    const result = highlighter.codeToTokens(source.slice(at, at + LINES_PER_PIECE).join("\n"), {
      lang: language,
      theme: THEME,
      tokenizeMaxLineLength: LINE_MAX,
      ...(state ? { grammarState: state } : {}),
    });
    state = result.grammarState;
    for (const line of result.tokens) {
      lines.push(line.map((token) => ({ text: token.content, className: classOf(token.color) })));
    }
  }
  return lines;
}
