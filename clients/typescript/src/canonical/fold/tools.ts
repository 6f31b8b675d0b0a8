/** Tool runs: what messages say of them, and what events say sooner. */
import type { Message, Part, RunningTool } from "../../generated/canonical.ts";
import type { ToolRun } from "../types.ts";

type Tools = Map<string, ToolRun>;

/** Learns from a message: its calls begin runs, its results end them. `isWorking`: a call without a result still runs. */
export function learn(tools: Tools, message: Message, isWorking: boolean): void {
  for (const part of message.parts) {
    if (isPart(part, "tool_call")) called(tools, part, message, isWorking);
    else if (isPart(part, "tool_result")) finished(tools, part, message);
  }
}

type KnownPart<T extends string> = Extract<Part, { type: T; tool_call_id: string }>;

function isPart<T extends "tool_call" | "tool_result">(part: Part, type: T): part is KnownPart<T> {
  return part.type === type;
}

function called(tools: Tools, part: KnownPart<"tool_call">, message: Message, isWorking: boolean): void {
  const known = tools.get(part.tool_call_id);
  const status = isWorking ? "running" : "interrupted";
  const fresh: ToolRun = { toolCallId: part.tool_call_id, name: part.name, status, startedAt: message.created_at };
  const run = { ...fresh, ...known, name: part.name };
  tools.set(part.tool_call_id, part.input === undefined ? run : { ...run, input: part.input });
}

function finished(tools: Tools, part: KnownPart<"tool_result">, message: Message): void {
  const known = tools.get(part.tool_call_id);
  const endedAt = known?.endedAt ?? message.created_at;
  const startedAt = part.duration_ms === undefined ? (known?.startedAt ?? endedAt) : endedAt - part.duration_ms;
  const { progress: _, ...before } = known ?? { progress: undefined };
  tools.set(part.tool_call_id, {
    ...before,
    toolCallId: part.tool_call_id,
    name: part.name ?? known?.name ?? message.tool_name ?? "",
    status: part.is_error ? "error" : "done",
    startedAt,
    endedAt,
    output: part.output,
  });
}

export function start(tools: Tools, toolCallId: string, name: string, input: unknown, startedAt: number): ToolRun {
  const known = tools.get(toolCallId);
  const run: ToolRun = { ...known, toolCallId, name, status: "running", startedAt };
  const withInput = input === undefined ? run : { ...run, input };
  tools.set(toolCallId, withInput);
  return withInput;
}

/** A tool that runs, as the answer to an attach tells it. */
export function running(tools: Tools, tool: RunningTool): void {
  const run = start(tools, tool.tool_call_id, tool.name, tool.input, tool.started_at);
  if (tool.partial_output !== undefined) tools.set(tool.tool_call_id, { ...run, progress: tool.partial_output });
}

export function end(
  tools: Tools,
  tool: { tool_call_id: string; name: string; output: unknown; is_error: boolean; duration_ms?: number },
  endedAt: number,
): void {
  const known = tools.get(tool.tool_call_id);
  const startedAt = tool.duration_ms === undefined ? (known?.startedAt ?? endedAt) : endedAt - tool.duration_ms;
  const { progress: _, ...before } = known ?? { progress: undefined };
  tools.set(tool.tool_call_id, {
    ...before,
    toolCallId: tool.tool_call_id,
    name: tool.name,
    status: tool.is_error ? "error" : "done",
    startedAt,
    endedAt,
    output: tool.output,
  });
}

/** The turn is over: what still ran was interrupted. Says whether something did. */
export function interruptAll(tools: Tools, except?: ReadonlySet<string>): boolean {
  let has = false;
  for (const [id, run] of tools) {
    if (run.status !== "running" || except?.has(id)) continue;
    has = true;
    tools.set(id, { ...run, status: "interrupted" });
  }
  return has;
}
