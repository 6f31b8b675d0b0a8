/** What Markdown becomes before it is in the page: elements and text, as plain data that can be compared and drawn. */

export const TAGS = [
  "a", "blockquote", "br", "button", "code", "del", "div", "em", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre",
  "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
] as const;

export const ATTRIBUTES = ["href", "target", "rel", "title", "class", "tabindex", "role", "aria-label", "start", "type"] as const;

export type Tag = (typeof TAGS)[number];
export type Attributes = Readonly<Partial<Record<(typeof ATTRIBUTES)[number], string>>>;

export interface MarkdownElement {
  readonly tag: Tag;
  readonly attributes: Attributes;
  readonly children: readonly MarkdownNode[];
}

/** Text is a string: it is never read as markup. */
export type MarkdownNode = string | MarkdownElement;

export function element(tag: Tag, attributes: Attributes, children: readonly MarkdownNode[]): MarkdownElement {
  return { tag, attributes, children: joined(children) };
}

/** Neighbouring texts are one, as they are in a page: a text that grows stays the same node. */
export function joined(nodes: readonly MarkdownNode[]): MarkdownNode[] {
  const all: MarkdownNode[] = [];
  for (const node of nodes) {
    const last = all.at(-1);
    if (typeof node !== "string") all.push(node);
    else if (typeof last === "string") all[all.length - 1] = last + node;
    else if (node !== "") all.push(node);
  }
  return all;
}

/** Whether it is the same element but for what is inside it. */
export function isAlike(one: MarkdownElement, other: MarkdownElement): boolean {
  return one.tag === other.tag && ATTRIBUTES.every((name) => one.attributes[name] === other.attributes[name]);
}
