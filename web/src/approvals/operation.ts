/** What a permission is about, in a shape that can be shown: nothing of it may be left out. */
import type { InputRequest, PermissionDetails } from "@quarterdeck/client";
import { changesOf, commandOf, contentOf, kindOf, pathOf, type Change } from "../conversation/tools/tools.ts";

export type Permission = Extract<InputRequest, { type: "permission" }>;

export interface Operation {
  /** `rpc.fs.write`, `bash`…; a permission for the session is for this one. */
  tool?: string;
  source: PermissionDetails["source"];
  /** A command line. */
  command?: string;
  /** A file that is written, with its new text. */
  path?: string;
  content?: string;
  /** Replacements in a file. */
  changes: Change[];
  /** Everything that is not shown otherwise, by name. */
  rest: [string, unknown][];
  /** Who asked for it. */
  principal?: string;
  actor?: string;
  /** What is typed for the person into a terminal. */
  approveText?: string;
  denyText?: string;
  /** Other answers than yes and no, where a menu asks. */
  choices: string[];
}

type Fields = Record<string, unknown>;

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const text = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined);

/** An agent that is not ours says what it wants in its own words: these are the usual ones. */
function toolOf(metadata: Fields): string | undefined {
  return text(metadata["op_tool"]) ?? text(metadata["tool_name"]) ?? text(metadata["toolName"]) ?? text(metadata["tool"]) ?? text(metadata["name"]);
}

function argumentsOf(metadata: Fields): unknown {
  return metadata["op_args"] ?? metadata["tool_input"] ?? metadata["input"] ?? metadata["rawInput"] ?? metadata["arguments"];
}

function isWrite(tool: string | undefined): boolean {
  if (tool === undefined) return false;
  return /(^|\.)fs\.write$/.test(tool) || kindOf(tool) === "write";
}

const SOURCES: readonly PermissionDetails["source"][] = ["agent", "gate", "screen"];

export function operationOf(request: Permission): Operation {
  const metadata = isFields(request.metadata) ? request.metadata : {};
  const tool = toolOf(metadata);
  const input = argumentsOf(metadata);
  const operation: Operation = { source: SOURCES.find((source) => source === metadata["source"]) ?? "agent", changes: [], rest: [], choices: choicesOf(metadata) };
  const shown = new Set<string>();
  if (tool !== undefined) operation.tool = tool;
  const command = commandOf(input);
  if (command !== undefined && typeof (input as Fields)["command"] === "string") {
    operation.command = command;
    shown.add("command");
  }
  const content = isWrite(tool) && isFields(input) && input["encoding"] !== "base64" ? contentOf(input) : undefined;
  const path = pathOf(input);
  if (path !== undefined && content !== undefined) {
    operation.path = path;
    operation.content = content;
    for (const name of ["path", "file_path", "content", "contents", "file_text"]) shown.add(name);
  } else if (path !== undefined && changesOf(input).length > 0) {
    operation.path = path;
    operation.changes = changesOf(input);
    for (const name of ["path", "file_path", "edits", "oldText", "newText", "old_string", "new_string"]) shown.add(name);
  }
  if (isFields(input)) operation.rest = Object.entries(input).filter(([name]) => !shown.has(name));
  else if (input !== undefined) operation.rest = [["arguments", input]];
  else operation.rest = otherFields(metadata);
  for (const [from, to] of [["principal", "principal"], ["actor", "actor"], ["approve_text", "approveText"], ["deny_text", "denyText"]] as const) {
    const value = text(metadata[from]);
    if (value !== undefined) operation[to] = value;
  }
  return operation;
}

function choicesOf(metadata: Fields): string[] {
  const { choices } = metadata;
  return Array.isArray(choices) ? choices.flatMap((choice: unknown) => (isFields(choice) ? (text(choice["label"]) ?? []) : [])) : [];
}

/** Of metadata without arguments all but what we put there ourselves. */
function otherFields(metadata: Fields): [string, unknown][] {
  const ours = ["source", "reason", "op_tool", "op_args_summary", "approve_text", "deny_text", "choices", "command", "principal", "actor"];
  return Object.entries(metadata).filter(([name]) => !ours.includes(name));
}

/** A value as a person reads it: texts as they are, the rest as JSON. */
export function valueText(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "");
}

/** What the operation does, in a few plain words. */
export function verbOf(operation: Operation): string {
  const names: Record<string, string> = {
    "rpc.bash": "Run a command",
    "host.bash": "Run a command",
    "rpc.fs.write": "Write a file",
    "rpc.fs.upload": "Upload a file",
    "rpc.fs.delete": "Delete",
    "rpc.fs.move": "Move",
    "rpc.fs.rename": "Rename",
    "rpc.fs.copy": "Copy",
    "rpc.fs.create_directory": "Make a directory",
    "rpc.git.worktree_add": "Add a worktree",
    "rpc.git.worktree_remove": "Remove a worktree",
  };
  const { tool } = operation;
  if (tool !== undefined && names[tool]) return names[tool];
  if (operation.command !== undefined) return "Run a command";
  if (operation.content !== undefined) return "Write a file";
  if (operation.changes.length > 0) return "Change a file";
  return tool ?? "Approve";
}
