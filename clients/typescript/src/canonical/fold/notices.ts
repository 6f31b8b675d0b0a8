/** What is told between messages, in a line. */
import type { EventEnvelope } from "../../generated/canonical.ts";
import type { Notice } from "../types.ts";

/** The notice of an event; most have none. */
export function noticeOf(frame: EventEnvelope, seq: number, afterIdx: number): Notice | undefined {
  const said = wordsOf(frame);
  if (!said) return undefined;
  const { session_id: _session, runner_id: _runner, ts, seq: _seq, ...detail } = frame;
  return { seq, ts, kind: said[0], text: said[1], detail, afterIdx };
}

function wordsOf(frame: EventEnvelope): [Notice["kind"], string] | undefined {
  switch (frame.event) {
    case "retry.start":
      return ["retry", `Retry ${frame.attempt} of ${frame.max_attempts} in ${seconds(frame.delay_ms)}: ${frame.error}`];
    case "retry.end":
      if (frame.success) return ["retry", "The retry succeeded"];
      return ["retry", `Gave up after ${frame.attempt} retries${because(frame.final_error)}`];
    case "compact.start":
      return ["compact", "Compacting the conversation"];
    case "compact.end":
      return ["compact", compacted(frame)];
    case "agent.error":
      return ["error", frame.error];
    case "notify":
      return ["notify", frame.message];
    case "session.created":
      return ["lifecycle", frame.resumed ? "The session goes on" : "The session began"];
    case "session.closed":
      return ["lifecycle", `The session was closed${because(frame.reason)}`];
    case "run.exited":
      return ["lifecycle", exited(frame)];
    default:
      return undefined;
  }
}

function compacted(end: { success: boolean; error?: string; tokens_before?: number }): string {
  if (!end.success) return `The conversation could not be compacted${because(end.error)}`;
  const before = end.tokens_before === undefined ? "" : ` (${end.tokens_before} tokens before)`;
  return `The conversation was compacted${before}`;
}

function exited(end: { exit_code: number; signal?: number; error?: string }): string {
  if (end.error !== undefined) return `The program ended: ${end.error}`;
  if (end.signal !== undefined) return `The program was ended by signal ${end.signal}`;
  return `The program ended with code ${end.exit_code}`;
}

function because(reason: unknown): string {
  return typeof reason === "string" && reason !== "" ? `: ${reason}` : "";
}

function seconds(milliseconds: number): string {
  return milliseconds < 1_000 ? `${milliseconds} ms` : `${Math.round(milliseconds / 100) / 10} s`;
}
