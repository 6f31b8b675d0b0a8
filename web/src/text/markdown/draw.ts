/**
 * The one door through which what agents write enters the page. No markup is ever parsed: nodes are made one by one, of
 * tags and attributes from a list, and everything else is text. A tree that grew changes only the nodes that did.
 */
import { ATTRIBUTES, isAlike, TAGS, type MarkdownElement, type MarkdownNode } from "./tree.ts";

const TAG_SET: ReadonlySet<string> = new Set(TAGS);
const ATTRIBUTE_SET: ReadonlySet<string> = new Set(ATTRIBUTES);

/** Pages, mail, and the session's own files. `render.ts` makes no others; this is the second look. */
const HREF = /^(?:https?:\/\/|mailto:|\/s\/)/i;

/** Makes what is inside the element what the nodes say; `before` is what was drawn there last. */
export function draw(parent: Element, nodes: readonly MarkdownNode[], before?: readonly MarkdownNode[]): void {
  // Somebody else may have changed the page, as translating browsers do: then it is drawn anew.
  if (!before || parent.childNodes.length !== before.length) {
    parent.replaceChildren();
    for (const node of nodes) parent.append(nodeOf(node));
    return;
  }
  let child = parent.firstChild;
  nodes.forEach((node, index) => {
    const known = before[index];
    if (known === undefined || child === null) {
      parent.append(nodeOf(node));
      return;
    }
    // What takes its place may be another node.
    child = update(child, node, known).nextSibling;
  });
  while (child) {
    const next: ChildNode | null = child.nextSibling;
    child.remove();
    child = next;
  }
}

function update(child: ChildNode, node: MarkdownNode, before: MarkdownNode): ChildNode {
  if (typeof node === "string") {
    if (node === before) return child;
    if (typeof before === "string" && child instanceof Text) {
      if (node.startsWith(before) && child.data === before) child.appendData(node.slice(before.length));
      else child.data = node;
      return child;
    }
  } else if (typeof before !== "string" && child instanceof Element && isAlike(node, before)) {
    draw(child, node.children, before.children);
    return child;
  }
  const made = nodeOf(node);
  child.replaceWith(made);
  return made;
}

function nodeOf(node: MarkdownNode): ChildNode {
  return typeof node === "string" ? document.createTextNode(node) : elementOf(node);
}

function elementOf({ tag, attributes, children }: MarkdownElement): Element {
  if (!TAG_SET.has(tag)) throw new Error(`Markdown may not make a ${tag}`);
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (!ATTRIBUTE_SET.has(name)) throw new Error(`Markdown may not set ${name}`);
    if (name !== "href" || HREF.test(value)) made.setAttribute(name, value);
  }
  for (const child of children) made.append(nodeOf(child));
  return made;
}
