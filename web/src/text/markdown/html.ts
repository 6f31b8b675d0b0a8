/** Markdown as HTML, for tests: it says in one line what `draw.ts` would put into the page. */
import type { Token } from "marked";
import { lex, renderTree, type RenderOptions } from "./render.ts";
import type { MarkdownNode } from "./tree.ts";
import { makeVisible } from "../visible/visible.ts";

const SPECIAL: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => SPECIAL[character] ?? character);
}

export function htmlOf(node: MarkdownNode): string {
  if (typeof node === "string") return escapeHtml(node);
  const attributes = Object.entries(node.attributes).map(([name, value]) => ` ${name}="${escapeHtml(value)}"`);
  const start = `<${node.tag}${attributes.join("")}>`;
  return node.tag === "br" || node.tag === "hr" ? start : `${start}${node.children.map(htmlOf).join("")}</${node.tag}>`;
}

export function renderToken(token: Token, options: RenderOptions = {}): string {
  return renderTree(token, options).map(htmlOf).join("");
}

/** Of a whole text; what the app shows goes through `blocks.ts`, piece by piece. */
export function renderMarkdown(text: string, options: RenderOptions = {}): string {
  return lex(makeVisible(text)).map((token) => renderToken(token, options)).join("");
}
