/**
 * The message being written grows with deltas. A delta says how many characters (Unicode scalar values) of its block
 * come before it, so one that came twice is known, and one that is missing too.
 */
import type { PartialBlock, PartialKind, PartialMessage } from "../../generated/canonical.ts";

export interface Delta {
  message_id: string;
  content_index: number;
  delta: string;
  offset?: number;
  kind: PartialKind;
  tool_call_id?: string;
  name?: string;
}

/** Unicode scalar values of a text: a pair of surrogates is one. */
export function scalarCount(text: string): number {
  let count = text.length;
  for (let at = 0; at < text.length - 1; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit < 0xd800 || unit > 0xdbff) continue;
    const next = text.charCodeAt(at + 1);
    if (next < 0xdc00 || next > 0xdfff) continue;
    count -= 1;
    at += 1;
  }
  return count;
}

/** The text without its first `count` scalar values. */
export function withoutFirst(text: string, count: number): string {
  let at = 0;
  for (let left = count; left > 0 && at < text.length; left -= 1) {
    at += (text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1;
  }
  return text.slice(at);
}

export function begin(messageId: string, role: PartialMessage["role"]): PartialMessage {
  return { message_id: messageId, role, blocks: [] };
}

/**
 * Adds a delta in place, at a cost that depends on the delta alone. False when something before it is missing: the
 * message stays as it is.
 */
export function grow(message: PartialMessage, delta: Delta): boolean {
  const block = blockOf(message, delta);
  const offset = delta.offset ?? block.offset;
  if (offset > block.offset) return false;
  const rest = withoutFirst(delta.delta, block.offset - offset);
  block.text += rest;
  block.offset += scalarCount(rest);
  if (delta.tool_call_id !== undefined) block.tool_call_id = delta.tool_call_id;
  if (delta.name !== undefined) block.name = delta.name;
  return true;
}

function blockOf(message: PartialMessage, delta: Delta): PartialBlock {
  const { blocks } = message;
  const last = blocks.at(-1);
  if (last?.content_index === delta.content_index) return last;
  const known = blocks.find((block) => block.content_index === delta.content_index);
  if (known) return known;
  const block: PartialBlock = { content_index: delta.content_index, kind: delta.kind, text: "", offset: 0 };
  const place = blocks.findIndex((other) => other.content_index > block.content_index);
  blocks.splice(place < 0 ? blocks.length : place, 0, block);
  return block;
}
