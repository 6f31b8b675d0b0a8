/** What the answer to an attach, or a resync, makes of a view. */
import type { AttachData } from "../../generated/canonical.ts";
import { startFrom } from "./conversation.ts";
import * as tools from "./tools.ts";
import type { FoldedSession } from "./folded-session.ts";

/** How the data came: asked for without a cursor, with one, or sent by the hub because events were lost. */
export type Arrival = "first" | "resumed" | "resync";

/** Takes the answer in; says whether the conversation must be read with `get_messages`, because it is not there. */
export function takeAttach(view: FoldedSession, data: AttachData, arrival: Arrival): { needsMessages: boolean } {
  const isNew = arrival === "first" || data.resume === "gap";
  const isRun = data.terminal !== undefined || data.state.run !== undefined;
  if (data.messages) {
    view.messages = startFrom(view.messages, data.messages);
    if (view.seq > data.seq) view.notices = [];
  }
  if (data.terminal) {
    view.terminal = data.terminal;
    view.outputs = [];
  }
  const hasSnapshot = data.messages !== undefined || data.terminal !== undefined;
  if (isNew && (hasSnapshot || data.seq > view.seq)) view.seq = data.seq;
  view.stateSeq = data.state.seq;
  view.state = data.state;
  view.questions = data.pending_input;
  takeWriting(view, data);
  return { needsMessages: isNew && arrival !== "resync" && data.messages === undefined && !isRun };
}

function takeWriting(view: FoldedSession, data: AttachData): void {
  const message = data.partial?.message;
  if (message?.role === "assistant") view.writing = structuredClone(message);
  else delete view.writing;
  relearnTools(view);
  const now = new Set<string>();
  for (const tool of data.partial?.tools ?? []) {
    tools.running(view.tools, tool);
    now.add(tool.tool_call_id);
  }
  if (data.state.status !== "working") {
    tools.interruptAll(view.tools, now);
    return;
  }
  // Calls of the last message may still wait for their turn; those of older ones will never run.
  for (const part of lastCalls(view)) now.add(part);
  tools.interruptAll(view.tools, now);
}

/** Tools of the loaded messages; what events told of them beyond that stays. */
export function relearnTools(view: FoldedSession): void {
  const isWorking = view.state?.status === "working";
  for (const message of view.messages) tools.learn(view.tools, message, isWorking);
}

/** The calls of the newest message that has some. */
function lastCalls(view: FoldedSession): string[] {
  for (let at = view.messages.length - 1; at >= 0; at -= 1) {
    const message = view.messages[at];
    if (message?.role !== "assistant") continue;
    const calls = message.parts.flatMap((part) => (part.type === "tool_call" ? [String(part.tool_call_id)] : []));
    return calls;
  }
  return [];
}
