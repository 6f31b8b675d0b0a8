/**
 * The bridge between pi and Quarterdeck: says what the agent is doing right now, through status lines that
 * `qd` reads and does not show.
 *
 *   qd_phase   `generating`, `tool_running:<tool>`, `tool_running:<n> tools`, `compacting`; cleared when settled
 *   qd_model   `{"provider":…,"model_id":…}` whenever another model is selected, which pi tells nobody else
 *
 * It only watches: no hook returns anything, none throws, none waits. Without it `qd` still knows the phases from
 * pi's own events.
 */
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";

const PHASE_KEY = "qd_phase";
const MODEL_KEY = "qd_model";

export default function qdBridge(pi: ExtensionAPI) {
  /** Tool calls that run now, by id. Several run at once, so one that ends does not end the phase. */
  const running = new Map<string, string>();
  let working = false;
  let compacting = false;
  /** The last phase told: a status line is written only when something changed. */
  let told: string | undefined;

  /** Runs one hook. Whatever goes wrong stays here: a failing hook would block tools or fill the log. */
  function safely(hook: () => void): void {
    try {
      hook();
    } catch {
      // Less detail for the watcher; the agent goes on.
    }
  }

  function phase(): string | undefined {
    if (compacting) return "compacting";
    if (running.size === 1) return `tool_running:${[...running.values()][0]}`;
    if (running.size > 1) return `tool_running:${running.size} tools`;
    return working ? "generating" : undefined;
  }

  function tell(ctx: ExtensionContext): void {
    const now = phase();
    if (now === told) return;
    told = now;
    ctx.ui.setStatus(PHASE_KEY, now);
  }

  function reset(): void {
    running.clear();
    working = false;
    compacting = false;
  }

  // A run may start again within one turn (retry, compaction, queued work); what ran before is over then.
  pi.on("agent_start", (_event, ctx) =>
    safely(() => {
      reset();
      working = true;
      tell(ctx);
    }),
  );

  pi.on("agent_settled", (_event, ctx) =>
    safely(() => {
      reset();
      tell(ctx);
    }),
  );

  pi.on("tool_execution_start", (event, ctx) =>
    safely(() => {
      running.set(event.toolCallId, event.toolName);
      tell(ctx);
    }),
  );

  pi.on("tool_execution_end", (event, ctx) =>
    safely(() => {
      running.delete(event.toolCallId);
      tell(ctx);
    }),
  );

  pi.on("session_before_compact", (_event, ctx) =>
    safely(() => {
      compacting = true;
      tell(ctx);
    }),
  );

  const compacted = (_event: unknown, ctx: ExtensionContext) =>
    safely(() => {
      compacting = false;
      tell(ctx);
    });
  pi.on("session_compact", compacted);
  pi.on("session_compact_failed", compacted);

  // Another conversation: nothing of the old one runs on.
  pi.on("session_start", (_event, ctx) =>
    safely(() => {
      reset();
      tell(ctx);
    }),
  );

  pi.on("model_select", (event, ctx) =>
    safely(() => {
      const { provider, id } = event.model;
      ctx.ui.setStatus(MODEL_KEY, JSON.stringify({ provider, model_id: id }));
    }),
  );
}
