import { recall, remember } from "../lib/browser/localStorage.ts";

/** What the person chose the last times, so that the next session is two clicks. */
export interface RecentChoices {
  runner?: string;
  harness?: string;
  /** By harness. */
  models: Record<string, string>;
  /** By runner, newest first. */
  directories: Record<string, string[]>;
  /** Command lines of programs in a terminal, newest first. */
  commands: string[];
  worktree?: boolean;
}

const KEPT = 8;
const PROMPT = "new.prompt";

/** The first prompt as far as it was written: it stays until it is sent, through other pages and reloads. */
export function writtenPrompt(): string {
  return recall(PROMPT, "");
}

export function keepPrompt(text: string): void {
  remember(PROMPT, text === "" ? undefined : text);
}

export function recentChoices(): RecentChoices {
  return { models: {}, directories: {}, commands: [], ...recall<Partial<RecentChoices>>("new", {}) };
}

function first(list: readonly string[], value: string): string[] {
  return [value, ...list.filter((one) => one !== value)].slice(0, KEPT);
}

export interface RecentChoice {
  runner: string;
  harness: string;
  model: string;
  directory: string;
  command: string;
  worktree: boolean;
}

export function rememberChoice(choice: RecentChoice): void {
  const before = recentChoices();
  const after: RecentChoices = {
    runner: choice.runner,
    harness: choice.harness,
    worktree: choice.worktree,
    models: { ...before.models, [choice.harness]: choice.model },
    directories: before.directories,
    commands: choice.command ? first(before.commands, choice.command) : before.commands,
  };
  if (choice.directory) {
    after.directories = { ...before.directories, [choice.runner]: first(before.directories[choice.runner] ?? [], choice.directory) };
  }
  remember("new", after);
}
