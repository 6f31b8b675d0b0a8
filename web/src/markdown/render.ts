/**
 * Markdown to HTML that is harmless by construction: every tag is written here, everything of the agent is escaped,
 * and addresses are let through only when they are known to be harmless. DOMPurify looks at it once more (`clean.ts`).
 */
import { Marked, type Token, type TokensList } from "marked";
import { makeVisible } from "./visible.ts";

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

const SPECIAL: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

/** Text as HTML. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => SPECIAL[character] ?? character);
}

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
const inlineText = (text: string): string => escapeHtml(makeVisible(decodeReferences(text)));

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

function linkTo(written: string, inside: string, options: RenderOptions, title?: string | null): string {
  const href = makeVisible(decodeReferences(written));
  const safe = safeHref(href);
  if (safe !== undefined) {
    const hint = inlineText(title ? `${title} (${safe})` : safe);
    return `<a href="${escapeHtml(safe)}" target="_blank" rel="noopener noreferrer nofollow" title="${hint}">${inside}</a>`;
  }
  const path = filePath(href);
  if (path !== undefined && options.fileHref) {
    return `<a href="${escapeHtml(options.fileHref(path))}" title="${escapeHtml(path)}">${inside}</a>`;
  }
  return `<span class="dead-link" title="${escapeHtml(href.slice(0, 200))}">${inside}</span>`;
}

/** The word after the fence, as far as it can be a name of a language. */
export function languageName(info: string | undefined): string {
  return (info ?? "").trim().split(/[\s{,:]/)[0]?.toLowerCase().replace(/[^a-z\d+#._-]/g, "").slice(0, 24) ?? "";
}

/** A block of code with its head; the button is wired by the component. */
export function codeBlock(code: string, info: string | undefined): string {
  const language = languageName(info);
  return (
    `<div class="code-block"><div class="code-head"><span>${escapeHtml(language || "text")}</span>` +
    `<button type="button" class="code-copy">Copy</button></div>` +
    `<pre tabindex="0" role="group" aria-label="Code"><code class="language-${escapeHtml(language || "text")}">` +
    `${escapeHtml(code)}</code></pre></div>`
  );
}

function build(options: RenderOptions): Marked {
  const marked = new Marked({ gfm: true, breaks: false, async: false });
  marked.use({
    tokenizer: {
      // Tags of the agent are text: people read `<Foo>` as it was written, and nothing comes alive.
      html: () => undefined,
      tag(source) {
        const match = /^<br\s*\/?>/i.exec(source);
        return match ? { type: "br", raw: match[0], inLink: false, inRawBlock: false, block: false, text: "" } as never : undefined;
      },
    },
    renderer: {
      html: ({ text }) => escapeHtml(text),
      code: ({ text, lang }) => codeBlock(text, lang),
      heading({ tokens, depth }) {
        // The page has the first level.
        const level = Math.min(depth + 1, 6);
        return `<h${level} class="heading-${depth}">${this.parser.parseInline(tokens)}</h${level}>`;
      },
      table(token) {
        const cell = (tag: "th" | "td", content: { tokens: Token[]; align: string | null }): string => {
          const align = content.align ? ` class="align-${escapeHtml(content.align)}"` : "";
          return `<${tag}${align}>${this.parser.parseInline(content.tokens)}</${tag}>`;
        };
        const head = token.header.map((content) => cell("th", content)).join("");
        const rows = token.rows.map((row) => `<tr>${row.map((content) => cell("td", content)).join("")}</tr>`).join("");
        return (
          `<div class="table-scroll" tabindex="0" role="group" aria-label="Table"><table>` +
          `<thead><tr>${head}</tr></thead><tbody>${rows}</tbody></table></div>`
        );
      },
      checkbox: ({ checked }) => `<span class="checkbox" role="img" aria-label="${checked ? "done" : "open"}">${checked ? "☑" : "☐"}</span> `,
      codespan: ({ text }) => `<code>${escapeHtml(text)}</code>`,
      link({ href, title, tokens }) {
        return linkTo(href, this.parser.parseInline(tokens), options, title);
      },
      image: ({ href, text }) => linkTo(href, `<span class="image-link">Image: ${inlineText(text || "without a name")}</span>`, options),
      text(token) {
        if ("tokens" in token && token.tokens) return this.parser.parseInline(token.tokens);
        return inlineText(token.text);
      },
    },
  });
  return marked;
}

const instances = new Map<RenderOptions["fileHref"], Marked>();

function instance(options: RenderOptions): Marked {
  let marked = instances.get(options.fileHref);
  if (!marked) {
    if (instances.size > 16) instances.clear();
    marked = build(options);
    instances.set(options.fileHref, marked);
  }
  return marked;
}

/** The blocks of a text whose controls are visible already. */
export function lex(text: string): TokensList {
  return instance({}).lexer(text);
}

/** The HTML of one block. */
export function renderToken(token: Token, options: RenderOptions = {}): string {
  return instance(options).parser([token]);
}

/** The HTML of a whole text; what the app shows goes through `blocks.ts`, piece by piece. */
export function renderMarkdown(text: string, options: RenderOptions = {}): string {
  return instance(options).parser(lex(makeVisible(text)));
}
