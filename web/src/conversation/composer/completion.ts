/** What may follow `/` and `@` in the composer. */
import type { FsTreeNode, SlashCommand } from "@quarterdeck/client";

export interface Completion {
  /** What is put in place of the word. */
  insert: string;
  label: string;
  detail?: string;
}

export interface Trigger {
  kind: "command" | "file";
  query: string;
  /** Where the word begins, its mark included. */
  start: number;
  end: number;
}

/** The word at the caret, if it is one to complete: a command at the very beginning, a file anywhere. */
export function triggerAt(text: string, caret: number): Trigger | undefined {
  const before = text.slice(0, caret);
  const command = /^\/(\S*)$/.exec(before);
  if (command) return { kind: "command", query: command[1] ?? "", start: 0, end: caret };
  const file = /(?:^|[\s([{"'`])@([^\s@]*)$/.exec(before);
  if (!file) return undefined;
  const query = file[1] ?? "";
  return { kind: "file", query, start: caret - query.length - 1, end: caret };
}

/** How well a name answers to what was typed: its letters in their order; higher is better, nothing for not at all. */
export function score(name: string, query: string): number | undefined {
  if (query === "") return 0;
  const [text, wanted] = [name.toLowerCase(), query.toLowerCase()];
  const base = text.slice(text.lastIndexOf("/", text.length - 2) + 1);
  if (base.startsWith(wanted)) return 1000 - name.length;
  if (base.includes(wanted)) return 800 - name.length;
  if (text.includes(wanted)) return 600 - name.length;
  let at = 0;
  let gaps = 0;
  for (const letter of wanted) {
    const next = text.indexOf(letter, at);
    if (next < 0) return undefined;
    gaps += next - at;
    at = next + 1;
  }
  return 300 - gaps - name.length / 10;
}

function best<T>(items: readonly T[], nameOf: (item: T) => string, query: string, most: number): T[] {
  const scored: { item: T; score: number }[] = [];
  for (const item of items) {
    const value = score(nameOf(item), query);
    if (value !== undefined) scored.push({ item, score: value });
  }
  return scored.sort((left, right) => right.score - left.score).slice(0, most).map(({ item }) => item);
}

export function completeCommand(commands: readonly SlashCommand[], query: string, most = 30): Completion[] {
  return best(commands, (command) => command.name, query, most).map((command) => ({
    insert: `/${command.name} `,
    label: `/${command.name}`,
    ...(command.description ? { detail: command.description } : {}),
  }));
}

export function completeFile(paths: readonly string[], query: string, most = 30): Completion[] {
  return best(paths, (path) => path, query, most).map((path) => ({
    // A directory is completed further, so no space follows it.
    insert: path.endsWith("/") ? `@${path}` : `@${path} `,
    label: path,
  }));
}

/** All paths of a tree, directories with a slash at their end. */
export function pathsOf(nodes: readonly FsTreeNode[]): string[] {
  return nodes.flatMap((node) => [
    node.type === "directory" ? `${node.path}/` : node.path,
    ...(node.children ? pathsOf(node.children) : []),
  ]);
}
