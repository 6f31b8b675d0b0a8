import { recall, remember } from "../lib/browser/localStorage.ts";

/** Which line of a diff, and what it said when it was commented on. */
export interface LineRef {
  path: string;
  side: "old" | "new";
  line: number;
  /** The line itself. */
  text: string;
}

export interface Comment extends LineRef {
  id: string;
  comment: string;
}

/** Lines of code in a prompt are quotes, not its own words. */
const QUOTE_MAX = 300;

/** What a person has to say about the changes of a session. It waits in this browser until it is sent. */
export class Review {
  readonly sessionId: string;
  comments = $state<Comment[]>([]);
  summary = $state("");

  constructor(sessionId: string) {
    this.sessionId = sessionId;
    const kept = recall<unknown>(`review.${sessionId}`, undefined);
    if (isKept(kept)) {
      this.comments = kept.comments.filter(isComment);
      this.summary = typeof kept.summary === "string" ? kept.summary : "";
    }
  }

  add(place: LineRef, comment: string): void {
    this.comments.push({ ...place, id: crypto.randomUUID(), comment });
    this.keep();
  }

  change(id: string, comment: string): void {
    const known = this.comments.find((one) => one.id === id);
    if (known) known.comment = comment;
    this.keep();
  }

  remove(id: string): void {
    this.comments = this.comments.filter((one) => one.id !== id);
    this.keep();
  }

  clear(): void {
    this.comments = [];
    this.summary = "";
    this.keep();
  }

  /** Comments on one line. */
  at(path: string, side: "old" | "new", line: number): Comment[] {
    return this.comments.filter((one) => one.path === path && one.side === side && one.line === line);
  }

  of(path: string): Comment[] {
    return this.comments.filter((one) => one.path === path);
  }

  keep(): void {
    const isEmpty = this.comments.length === 0 && this.summary === "";
    remember(`review.${this.sessionId}`, isEmpty ? undefined : { comments: this.comments, summary: this.summary });
  }

  /** All of it as one message to the agent. */
  prompt(): string {
    const parts = ["Please address this review of the changes in the working directory."];
    if (this.summary.trim() !== "") parts.push(this.summary.trim());
    const sorted = [...this.comments].sort((one, other) => one.path.localeCompare(other.path) || one.line - other.line);
    for (const one of sorted) {
      const side = one.side === "old" ? " (removed line)" : "";
      parts.push(`${code(`${one.path}:${one.line}`)}${side}\n> ${quoted(one.text)}\n\n${one.comment.trim()}`);
    }
    return parts.join("\n\n");
  }
}

function quoted(line: string): string {
  const text = line.trim();
  if (text === "") return "(empty line)";
  return code(text.length > QUOTE_MAX ? `${text.slice(0, QUOTE_MAX)}…` : text);
}

/** Backticks around it, more than it has itself. */
function code(text: string): string {
  const longest = Math.max(0, ...[...text.matchAll(/`+/g)].map((run) => run[0].length));
  const fence = "`".repeat(longest + 1);
  return longest === 0 ? `${fence}${text}${fence}` : `${fence} ${text} ${fence}`;
}

function isKept(value: unknown): value is { comments: unknown[]; summary?: unknown } {
  return typeof value === "object" && value !== null && "comments" in value && Array.isArray(value.comments);
}

function isComment(value: unknown): value is Comment {
  if (typeof value !== "object" || value === null) return false;
  const one = value as Record<string, unknown>;
  const hasTexts = ["id", "path", "text", "comment"].every((name) => typeof one[name] === "string");
  return hasTexts && typeof one["line"] === "number" && (one["side"] === "old" || one["side"] === "new");
}
