/** The answer being written: pi's `message_update` events folded into one message. */

/** A message in pi's own form; only what identifies it is named here. */
export interface AgentMessage {
  role: string;
  timestamp?: number;
  toolCallId?: string;
  content?: unknown;
  [key: string]: unknown;
}

type Part = { type: string; [key: string]: unknown };

/** What pi says of a change; `content` and `toolCall` at the end of a part are whole. */
interface MessageChange {
  type: string;
  contentIndex?: number;
  delta?: string;
  content?: string;
  id?: string;
  toolName?: string;
  toolCall?: Part;
}

/** A message of its own, which later changes may write to. */
export function begin(message: AgentMessage): AgentMessage {
  const content = Array.isArray(message.content) ? message.content.map((part: Part) => ({ ...part })) : message.content;
  return { ...message, content };
}

/**
 * Applies one `message_update`. Until a tool call is whole, the text of its arguments is in `partialJson`.
 */
export function change(streaming: AgentMessage, update: { [key: string]: unknown }): AgentMessage {
  // Other versions of pi send the whole message each time.
  if (update.message) return begin(update.message as AgentMessage);
  if (update.usage !== undefined) streaming.usage = update.usage;
  const event = update.assistantMessageEvent as MessageChange | undefined;
  const index = event?.contentIndex;
  if (!event || index === undefined || !Array.isArray(streaming.content)) return streaming;
  const parts = streaming.content as Part[];
  // A place further on would leave holes: something is missing, and the end of the message will tell.
  if (index > parts.length) return streaming;
  switch (event.type) {
    case "text_start":
    case "text_delta":
    case "text_end":
      write(parts, index, "text", "text", event);
      break;
    case "thinking_start":
    case "thinking_delta":
    case "thinking_end":
      write(parts, index, "thinking", "thinking", event);
      break;
    case "toolcall_start":
      parts[index] = { type: "toolCall", id: event.id, name: event.toolName, arguments: {} };
      break;
    case "toolcall_delta": {
      const part = (parts[index] ??= { type: "toolCall", arguments: {} });
      part.partialJson = `${(part.partialJson as string | undefined) ?? ""}${event.delta ?? ""}`;
      break;
    }
    case "toolcall_end":
      if (event.toolCall) parts[index] = { ...event.toolCall };
      break;
    default:
      break;
  }
  return streaming;
}

function write(parts: Part[], index: number, type: string, field: string, event: MessageChange): void {
  const part = (parts[index] ??= { type, [field]: "" });
  if (event.type.endsWith("_delta")) part[field] = `${(part[field] as string | undefined) ?? ""}${event.delta ?? ""}`;
  if (event.type.endsWith("_end") && event.content !== undefined) part[field] = event.content;
}

/** Whether both are the same message of a conversation. */
export function isSame(left: AgentMessage, right: AgentMessage): boolean {
  return (
    left.role === right.role &&
    left.timestamp === right.timestamp &&
    left.toolCallId === right.toolCallId &&
    isEqual(left.content, right.content)
  );
}

/** The order of fields means nothing: events have pi's own, `get_messages` another. */
function isEqual(left: unknown, right: unknown): boolean {
  if (left === right) return true;
  if (typeof left !== "object" || typeof right !== "object" || left === null || right === null) return false;
  if (Array.isArray(left) !== Array.isArray(right)) return false;
  const fields = Object.keys(left);
  if (fields.length !== Object.keys(right).length) return false;
  return fields.every((field) => {
    return Object.hasOwn(right, field) && isEqual(left[field as keyof typeof left], right[field as keyof typeof right]);
  });
}
