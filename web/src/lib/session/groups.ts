import { makeVisible } from "../../text/visible/visible.ts";
import type { RunnerInfo, SessionSummary } from "@quarterdeck/client";
import { baseName, harnessName } from "../format.ts";

export type Group = "needs" | "working" | "idle" | "done";

export const groupOrder: readonly Group[] = ["needs", "working", "idle", "done"];

export const groupNames: Record<Group, string> = { needs: "Needs you", working: "Working", idle: "Idle", done: "Done" };

/** A shell that is a tool beside its session, which has a page for it; it is listed and counted nowhere else. */
export function isSharedTerminal(session: { harness: string }): boolean {
  return session.harness === "terminal";
}

export function withoutTerminals(sessions: readonly SessionSummary[]): SessionSummary[] {
  return sessions.filter((session) => !isSharedTerminal(session));
}

/** Where a session stands in the fleet, which a shared terminal does not. One whose machine is away stays where it last was. */
export function groupOf(session: SessionSummary): Group | undefined {
  if (isSharedTerminal(session)) return undefined;
  if (session.state === "closed") return "done";
  if (session.pending_input_count > 0 || session.state === "failed") return "needs";
  if (session.state === "working") return "working";
  if (session.state === "offline" && session.working_since !== undefined) return "working";
  return "idle";
}

/** What a session is called: its title, or what tells it apart until it has one. */
export function titleOf(session: SessionSummary): string {
  if (session.title) return makeVisible(session.title);
  const harness = harnessName(session.harness, session.run_tool);
  return session.cwd ? `${harness} in ${baseName(session.cwd)}` : `${harness} ${session.session_id}`;
}

export function isRun(session: { harness: string }): boolean {
  return session.harness === "pty" || isSharedTerminal(session);
}

const phaseWords: Record<string, string> = {
  generating: "writing",
  thinking: "thinking",
  tool_running: "running a tool",
  compacting: "compacting",
  retrying: "retrying",
  initializing: "starting",
};

/** What a session does now, in a word or three. */
export function statusWord(session: SessionSummary): string {
  if (session.state === "offline") return "offline";
  if (session.state === "failed") return "failed";
  if (session.state === "closed") return "closed";
  if (session.pending_input_count > 0) return session.pending_input_count > 1 ? `${session.pending_input_count} questions` : "asks you";
  if (session.state === "working") return isRun(session) ? "running" : (phaseWords[session.phase ?? ""] ?? "working");
  if (session.state === "starting") return "starting";
  return session.state === "dormant" ? "asleep" : "idle";
}

/** The tone of its mark. */
export function toneOf(session: SessionSummary): "needs" | "bad" | "accent" | "neutral" | "faint" {
  if (session.state === "failed") return "bad";
  const group = groupOf(session);
  if (group === "needs") return "needs";
  if (session.state === "offline") return "faint";
  return group === "working" ? "accent" : group === "done" ? "faint" : "neutral";
}

/** What people call a machine: a runner that joined by the name it was given, the one inside the hub by its host's. */
export function runnerName(runner: RunnerInfo | undefined, runnerId: string): string {
  if (!runner) return runnerId;
  return runner.joined_at === undefined ? runner.hostname || runnerId : runnerId;
}

/** A line of Markdown as words: what a list has no room to draw. */
export function plainWords(text: string): string {
  return text
    .replace(/^\s*(#{1,6}|[-*+]|\d+\.|>)\s+/, "")
    .replace(/(\*\*|__|~~|`+)/g, "")
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, "$1");
}
