/** The parts of a message in one shape, whether it is whole or still being written. */
import type { FileRange, ImageAttachment, MediaSource, Message, PartialMessage } from "@quarterdeck/client";
import { partialInput } from "../tools/tools.ts";

export type ViewPart =
  | { kind: "text"; text: string; isPlain: boolean }
  | { kind: "thinking"; text: string }
  | { kind: "tool"; toolCallId: string; name: string; input: unknown; isPreparing: boolean; size: number }
  | { kind: "result"; toolCallId: string; name: string; input?: unknown; output: unknown; isError: boolean }
  | { kind: "media"; media: "image" | "audio" | "video" | "attachment"; source: MediaSource; label: string }
  | { kind: "file"; uri: string; label: string; range?: FileRange }
  | { kind: "other"; name: string; value: unknown };

function partOf(part: Message["parts"][number]): ViewPart {
  switch (part.type) {
    case "text":
      return { kind: "text", text: part.text, isPlain: part.format === "plain" };
    case "thinking":
      return { kind: "thinking", text: part.text };
    case "tool_call":
      return { kind: "tool", toolCallId: part.tool_call_id, name: part.name, input: part.input, isPreparing: false, size: 0 };
    case "tool_result":
      return { kind: "result", toolCallId: part.tool_call_id, name: part.name ?? "tool", output: part.output, isError: part.is_error };
    case "image":
      return { kind: "media", media: "image", source: part.source, label: part.alt ?? "Image" };
    case "audio":
      return { kind: "media", media: "audio", source: part.source, label: part.transcript ?? "Audio" };
    case "video":
      return { kind: "media", media: "video", source: part.source, label: "Video" };
    case "attachment":
      return { kind: "media", media: "attachment", source: part.source, label: part.filename ?? "Attachment" };
    case "file_ref":
      return { kind: "file", uri: part.uri, label: part.label ?? part.uri, ...(part.range ? { range: part.range } : {}) };
    default:
      return { kind: "other", name: part.type, value: part.payload ?? part };
  }
}

export function partsOf(message: Message): ViewPart[] {
  return shellPart(message) ?? message.parts.map(partOf);
}

/** A command a person ran beside the agent comes as text: `$ command`, then its output. */
function shellPart(message: Message): ViewPart[] | undefined {
  if (message.metadata?.["native_role"] !== "bashExecution") return undefined;
  const match = /^\$ ([^\n]*)\n?([\s\S]*)$/.exec(textOf(message));
  if (!match) return undefined;
  const exitCode = message.metadata["exit_code"];
  const isError = typeof exitCode === "number" && exitCode !== 0;
  return [{ kind: "result", toolCallId: "", name: "bash", input: { command: match[1] }, output: match[2] ?? "", isError }];
}

/** The blocks in their places; a place may be empty for a moment. */
export function partsOfPartial(message: PartialMessage | undefined): ViewPart[] {
  const parts: ViewPart[] = [];
  for (const block of message?.blocks ?? []) {
    if (block.kind === "tool_call") {
      const { tool_call_id = "", name = "tool", text } = block;
      parts.push({ kind: "tool", toolCallId: tool_call_id, name, input: partialInput(text), isPreparing: true, size: text.length });
    } else {
      parts.push(block.kind === "text" ? { kind: "text", text: block.text, isPlain: false } : { kind: "thinking", text: block.text });
    }
  }
  return parts;
}

/** All that a message says, for copying and for finding it again. */
export function textOf(message: Message): string {
  return message.parts.flatMap((part) => (part.type === "text" && typeof part.text === "string" ? [part.text] : [])).join("\n\n");
}

/** The images of a message, as they are sent. */
export function imagesOf(message: Message): ImageAttachment[] {
  return message.parts.flatMap((part) => {
    if (part.type !== "image" || !("source" in part)) return [];
    const { source } = part as { source: MediaSource };
    return source.source === "base64" ? [{ data: source.data, media_type: source.mime_type }] : [];
  });
}
