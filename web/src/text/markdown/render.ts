/**
 * Markdown to a tree that is harmless by construction: every element is made here, everything of the agent is text, and
 * addresses are let through only when they are known to be harmless. `draw.ts` looks at it once more.
 */
import { Lexer, Tokenizer, type MarkedToken, type Token, type Tokens, type TokensList } from "marked";
import { type Attributes, element, joined, type MarkdownElement, type MarkdownNode } from "./tree.ts";
import { makeVisible } from "../visible/visible.ts";

export interface RenderOptions {
  /** Where a path of the session's directory is shown; without it such links are plain text. */
  fileHref?: ((path: string) => string) | undefined;
}

const ENTITIES: Record<string, string> = {
  amp: "&",
  lt: "<",
  gt: ">",
  quot: '"',
  apos: "'",
  nbsp: "\u00a0",
  copy: "©",
  reg: "®",
  trade: "™",
  mdash: "—",
  ndash: "–",
  hellip: "…",
  rarr: "→",
  larr: "←",
  uarr: "↑",
  darr: "↓",
  times: "×",
  middot: "·",
  bull: "•",
  deg: "°",
  le: "≤",
  ge: "≥",
  ne: "≠",
};

/** What a reference stands for; references to controls become visible, unknown ones stay as they are written. */
function decodeReferences(text: string): string {
  return text.replace(/&(?:#(\d{1,7})|#[xX]([\da-fA-F]{1,6})|([A-Za-z]{2,8}));/g, (whole, decimal, hexadecimal, name) => {
    if (typeof name === "string") return ENTITIES[name] ?? whole;
    const code = typeof decimal === "string" ? Number(decimal) : Number.parseInt(String(hexadecimal), 16);
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return "\ufffd";
    return makeVisible(String.fromCodePoint(code));
  });
}

/** marked has decoded numbers already, controls among them. */
const inlineText = (text: string): string => makeVisible(decodeReferences(text));

/** The address if following it is harmless: pages and mail, nothing that runs or carries its content with it. */
export function safeHref(href: string): string | undefined {
  const trimmed = href.trim();
  if (!/^(https?:\/\/[^\s/]|mailto:[^\s])/i.test(trimmed)) return undefined;
  try {
    const { protocol } = new URL(trimmed);
    return protocol === "http:" || protocol === "https:" || protocol === "mailto:" ? trimmed : undefined;
  } catch {
    return undefined;
  }
}

/** A path below the session's directory, as agents write them: `src/main.rs`, `./a.md#L3`. */
export function filePath(href: string): string | undefined {
  const path = href.trim().replace(/^\.\//, "").replace(/[#?].*$/, "").replace(/([./].*):\d+(-\d+)?$/, "$1");
  if (path === "" || /^[/\\#?]|^[a-z][a-z\d+.-]*:|(^|[/\\])\.\.([/\\]|$)|[\u0000-\u001f]/i.test(path)) return undefined;
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

function linkTo(written: string, inside: MarkdownNode[], options: RenderOptions, title?: string | null): MarkdownElement {
  const href = makeVisible(decodeReferences(written));
  const safe = safeHref(href);
  if (safe !== undefined) {
    const hint = inlineText(title ? `${title} (${safe})` : safe);
    return element("a", { href: safe, target: "_blank", rel: "noopener noreferrer nofollow", title: hint }, inside);
  }
  const path = filePath(href);
  if (path !== undefined && options.fileHref) return element("a", { href: options.fileHref(path), title: makeVisible(path) }, inside);
  return element("span", { class: "dead-link", title: href.slice(0, 200) }, inside);
}

/** The word after the fence, as far as it can be a name of a language. */
export function languageName(info: string | undefined): string {
  return (info ?? "").trim().split(/[\s{,:]/)[0]?.toLowerCase().replace(/[^a-z\d+#._-]/g, "").slice(0, 24) ?? "";
}

/** A block of code with its head; the button is wired by the component. */
export function codeBlock(code: string, info: string | undefined): MarkdownElement {
  const language = languageName(info) || "text";
  const copy = element("button", { type: "button", class: "code-copy" }, ["Copy"]);
  return element("div", { class: "code-block" }, [
    element("div", { class: "code-head" }, [element("span", {}, [language]), copy]),
    element("pre", { tabindex: "0", role: "group", "aria-label": "Code" }, [element("code", { class: `language-${language}` }, [code])]),
  ]);
}

function table(token: Tokens.Table, options: RenderOptions): MarkdownElement {
  const row = (tag: "th" | "td", cells: readonly Tokens.TableCell[]): MarkdownElement =>
    element("tr", {}, cells.map(({ align, tokens }) => element(tag, align ? { class: `align-${align}` } : {}, inline(tokens, options))));
  const body = token.rows.map((cells) => row("td", cells));
  const whole = element("table", {}, [element("thead", {}, [row("th", token.header)]), element("tbody", {}, body)]);
  return element("div", { class: "table-scroll", tabindex: "0", role: "group", "aria-label": "Table" }, [whole]);
}

function list({ ordered, start, items }: Tokens.List, options: RenderOptions): MarkdownElement {
  const attributes: Attributes = ordered && start !== 1 ? { start: String(start) } : {};
  return element(ordered ? "ol" : "ul", attributes, items.map((item) => element("li", {}, blocks(item.tokens, options))));
}

const HEADINGS = ["h2", "h3", "h4", "h5", "h6"] as const;

function blocks(tokens: readonly Token[], options: RenderOptions): MarkdownNode[] {
  return tokens.flatMap((token) => renderTree(token, options));
}

/** The nodes of one block. */
export function renderTree(token: Token, options: RenderOptions = {}): MarkdownNode[] {
  const known = token as MarkedToken;
  switch (known.type) {
    case "space":
    case "def":
      return [];
    case "hr":
      return [element("hr", {}, [])];
    case "heading":
      // The page has the first level.
      return [element(HEADINGS[known.depth - 1] ?? "h6", { class: `heading-${known.depth}` }, inline(known.tokens, options))];
    case "code":
      return [codeBlock(known.text, known.lang)];
    case "table":
      return [table(known, options)];
    case "blockquote":
      return [element("blockquote", {}, blocks(known.tokens, options))];
    case "list":
      return [list(known, options)];
    case "paragraph":
      return [element("p", {}, inline(known.tokens, options))];
    default:
      return inlineToken(known, options);
  }
}

function inline(tokens: readonly Token[], options: RenderOptions): MarkdownNode[] {
  return joined(tokens.flatMap((token) => inlineToken(token as MarkedToken, options)));
}

function inlineToken(token: MarkedToken, options: RenderOptions): MarkdownNode[] {
  switch (token.type) {
    case "strong":
    case "em":
    case "del":
      return [element(token.type, {}, inline(token.tokens, options))];
    case "codespan":
      return [element("code", {}, [token.text])];
    case "br":
      return [element("br", {}, [])];
    case "checkbox": {
      const [name, sign] = token.checked ? ["done", "☑"] : ["open", "☐"];
      return [element("span", { class: "checkbox", role: "img", "aria-label": name }, [sign]), " "];
    }
    case "link":
      return [linkTo(token.href, inline(token.tokens, options), options, token.title)];
    case "image": {
      const name = element("span", { class: "image-link" }, [`Image: ${inlineText(token.text || "without a name")}`]);
      return [linkTo(token.href, [name], options)];
    }
    case "text":
      return token.tokens ? inline(token.tokens, options) : [inlineText(token.text)];
    case "escape":
      return [inlineText(token.text)];
    default:
      // Nothing that was written is left out.
      return [makeVisible(token.raw)];
  }
}

/** Tags of the agent are text: people read `<Foo>` as it was written, and nothing comes alive. */
class TextTokenizer extends Tokenizer {
  override html(): undefined {
    return undefined;
  }

  override tag(source: string): Tokens.Tag | undefined {
    const match = /^<br\s*\/?>/i.exec(source);
    return match ? ({ type: "br", raw: match[0], inLink: false, inRawBlock: false, block: false, text: "" } as never) : undefined;
  }
}

/** The blocks of a text whose controls are visible already. */
export function lex(text: string): TokensList {
  return Lexer.lex(text, { gfm: true, breaks: false, tokenizer: new TextTokenizer() });
}
