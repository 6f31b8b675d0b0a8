/** Events of a program in a terminal. */
import type { EventEnvelope, RunState } from "../../generated/canonical.ts";
import { defined, patch, type ChangeKind, type FoldedSession } from "./folded-session.ts";

/** Output is wanted whenever it comes; the rest is true only at its moment. */
export function foldRun(view: FoldedSession, frame: EventEnvelope, isNow: boolean): ChangeKind | undefined {
  if (frame.event === "run.output") {
    if (view.seq <= (view.terminal?.seq ?? 0)) return undefined;
    view.outputs.push({ text: frame.text, seq: view.seq });
    return undefined;
  }
  if (!isNow || !frame.event.startsWith("run.")) return isNow ? foldAnswered(view, frame) : undefined;
  switch (frame.event) {
    case "run.started": {
      const { tool, command, pid, cols, rows, cwd } = frame;
      const run: RunState = { tool, command, cols, rows, started_at: frame.ts };
      patch(view, { status: "working", cwd, error: undefined, run: pid === undefined ? run : { ...run, pid } });
      return "state";
    }
    case "run.resized":
      return patchRun(view, { cols: frame.cols, rows: frame.rows });
    case "run.awaiting_input": {
      const { reason, prompt, request_id } = frame;
      return patchRun(view, { awaiting: { reason, prompt, request_id } });
    }
    case "run.input":
      return patchRun(view, { awaiting: undefined });
    case "run.exited": {
      const { exit_code, signal, error, ts } = frame;
      patchRun(view, { exit_code, signal, exited_at: ts, pid: undefined, awaiting: undefined });
      patch(view, { status: "closed", phase: undefined, detail: undefined, error });
      return "state";
    }
    default:
      return undefined;
  }
}

/** The question of a screen that somebody answered is none any more. */
function foldAnswered(view: FoldedSession, frame: EventEnvelope): ChangeKind | undefined {
  if (frame.event !== "agent.input_resolved") return undefined;
  if (view.state?.run?.awaiting?.request_id !== frame.request_id) return undefined;
  return patchRun(view, { awaiting: undefined });
}

function patchRun(view: FoldedSession, change: Partial<RunState>): ChangeKind | undefined {
  const run = view.state?.run;
  if (!run) return undefined;
  patch(view, { run: defined({ ...run, ...change }) as RunState });
  return "state";
}
