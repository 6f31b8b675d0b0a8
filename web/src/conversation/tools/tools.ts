/** What a tool call is, whatever the harness calls it: so that it can be shown for what it does. */
import type { ImageAttachment } from "@quarterdeck/client";

export type ToolKind = "shell" | "read" | "edit" | "write" | "search" | "list" | "other";

const KINDS: Record<string, ToolKind> = {
  bash: "shell", shell: "shell", exec: "shell", execute: "shell", exec_command: "shell", local_shell: "shell",
  run_shell_command: "shell", run_terminal_cmd: "shell",
  read: "read", read_file: "read", view: "read", cat: "read", notebookread: "read",
  edit: "edit", edit_file: "edit", multiedit: "edit", str_replace: "edit", replace: "edit", apply_patch: "edit", patch: "edit",
  write: "write", write_file: "write", create: "write", create_file: "write",
  grep: "search", search: "search", search_file_content: "search", rg: "search",
  find: "list", glob: "list", ls: "list", list: "list", list_directory: "list", list_files: "list",
};

type Fields = Record<string, unknown>;

function fieldsOf(value: unknown): Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : {};
}

/** The first of the fields that is a text. */
function textField(input: unknown, ...names: string[]): string | undefined {
  const fields = fieldsOf(input);
  for (const name of names) {
    const value = fields[name];
    if (typeof value === "string") return value;
  }
  return undefined;
}

export function kindOf(name: string): ToolKind {
  const plain = name.toLowerCase().replace(/^(functions|mcp__[^_]+_)[._]/, "");
  return KINDS[plain] ?? "other";
}

export function commandOf(input: unknown): string | undefined {
  const command = fieldsOf(input)["command"] ?? fieldsOf(input)["cmd"];
  if (typeof command === "string") return command;
  if (Array.isArray(command) && command.every((word) => typeof word === "string")) {
    return command[0] === "bash" && command.length === 3 ? command[2] : command.join(" ");
  }
  return undefined;
}

export function pathOf(input: unknown): string | undefined {
  return textField(input, "path", "file_path", "filePath", "filename", "file", "target_file", "notebook_path", "absolute_path");
}

/** The line a read begins at. */
export function firstLineOf(input: unknown): number {
  const offset = fieldsOf(input)["offset"];
  return typeof offset === "number" && offset > 0 ? offset : 1;
}

export interface Change {
  before: string;
  after: string;
}

/** The replacements of an edit, or the whole text of a write. */
export function changesOf(input: unknown): Change[] {
  const fields = fieldsOf(input);
  const list = Array.isArray(fields["edits"]) ? fields["edits"] : [fields];
  const changes: Change[] = [];
  for (const entry of list) {
    const before = textField(entry, "oldText", "old_string", "old_str", "old_text", "search");
    const after = textField(entry, "newText", "new_string", "new_str", "new_text", "replace");
    if (before !== undefined || after !== undefined) changes.push({ before: before ?? "", after: after ?? "" });
  }
  return changes;
}

export function contentOf(input: unknown): string | undefined {
  return textField(input, "content", "contents", "file_text", "text", "new_content");
}

/** A unified diff, where the tool or its result has one. */
export function patchOf(input: unknown, output: unknown): string | undefined {
  const details = fieldsOf(fieldsOf(output)["details"]);
  const patch = textField(details, "patch") ?? textField(input, "patch", "diff");
  return patch !== undefined && /^@@ /m.test(patch) ? patch : undefined;
}

export interface ToolOutput {
  text: string;
  images: ImageAttachment[];
  /** What is neither text nor image. */
  rest?: unknown;
}

/** What a tool gave back, in the shapes harnesses use: a text, a list of blocks, or either in `content`. */
export function outputOf(value: unknown): ToolOutput {
  if (value === undefined || value === null) return { text: "", images: [] };
  if (typeof value === "string") return { text: value, images: [] };
  if (Array.isArray(value)) return blocksOf(value);
  const fields = fieldsOf(value);
  if (typeof fields["content"] === "string") return { text: fields["content"], images: [] };
  if (Array.isArray(fields["content"])) return blocksOf(fields["content"]);
  const streams = ["output", "stdout", "stderr"].map((name) => fields[name]).filter((text) => typeof text === "string");
  if (streams.length > 0) return { text: streams.filter((text) => text !== "").join("\n"), images: [] };
  return { text: "", images: [], rest: value };
}

function blocksOf(blocks: unknown[]): ToolOutput {
  const texts: string[] = [];
  const images: ImageAttachment[] = [];
  const rest: unknown[] = [];
  for (const block of blocks) {
    const fields = fieldsOf(block);
    const source = fieldsOf(fields["source"]);
    const data = fields["data"] ?? source["data"];
    const mediaType = fields["mimeType"] ?? fields["media_type"] ?? fields["mime_type"] ?? source["media_type"] ?? source["mime_type"];
    if (typeof block === "string") texts.push(block);
    else if (typeof fields["text"] === "string") texts.push(fields["text"]);
    else if (fields["type"] === "image" && typeof data === "string" && typeof mediaType === "string") {
      images.push({ data, media_type: mediaType });
    } else rest.push(block);
  }
  const output: ToolOutput = { text: texts.join("\n"), images };
  if (rest.length > 0) output.rest = rest;
  return output;
}

/** What the call is about, in one line. */
export function summaryOf(name: string, input: unknown): string {
  const kind = kindOf(name);
  const fields = fieldsOf(input);
  if (kind === "shell") return oneLine(commandOf(input) ?? "");
  if (kind === "search") {
    const pattern = textField(input, "pattern", "query", "regex") ?? "";
    const place = textField(input, "path", "dir", "include", "glob");
    return oneLine(place ? `${pattern} in ${place}` : pattern);
  }
  if (kind === "list") return oneLine(textField(input, "pattern", "path", "dir", "dir_path") ?? ".");
  const path = pathOf(input);
  if (path !== undefined) return path;
  const first = Object.values(fields).find((value) => typeof value === "string" && value !== "");
  return typeof first === "string" ? oneLine(first) : "";
}

function oneLine(text: string): string {
  return text.replace(/\s+/g, " ").trim().slice(0, 300);
}

/** What can be said of a call whose arguments still come, as text that is no JSON yet. */
export function partialInput(text: string): Fields {
  try {
    return fieldsOf(JSON.parse(text));
  } catch {
    const fields: Fields = {};
    for (const [, name = "", value = ""] of text.slice(0, 4000).matchAll(/"(\w{1,40})"\s*:\s*"((?:[^"\\]|\\.)*)"/g)) {
      if (name === "content" || name in fields) continue;
      try {
        fields[name] = JSON.parse(`"${value}"`);
      } catch {
        // A value that is no text yet says nothing.
      }
    }
    return fields;
  }
}

export interface Hit {
  path: string;
  line?: number;
  text: string;
}

/** Lines of a search, `path:line: text` or `path` alone; nothing where the text is something else. */
export function hitsOf(text: string): Hit[] {
  const hits: Hit[] = [];
  for (const line of text.split("\n")) {
    if (line.trim() === "") continue;
    const match = /^(.{1,300}?)[:-](\d{1,7})[:-]\s?(.*)$/.exec(line);
    if (match) hits.push({ path: match[1] ?? "", line: Number(match[2]), text: match[3] ?? "" });
    else hits.push({ path: "", text: line });
  }
  return hits;
}

/** Where something found is: many tools name it from where they looked, which is a directory or the file itself. */
export function placeOf(found: string, base: string | undefined): string {
  const start = base?.replace(/^\.\//, "").replace(/\/$/, "") ?? "";
  if (start === "" || start === "." || found.startsWith("/") || found.startsWith(`${start}/`)) return found;
  return start === found || start.endsWith(`/${found}`) ? start : `${start}/${found}`;
}
