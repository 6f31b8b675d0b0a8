/**
 * The bridge between pi and Quarterdeck. It tells what pi's RPC does not, and does what pi's RPC cannot. Everything
 * travels in words that `qd` reads and shows to nobody:
 *
 *   status `qd_phase`      `generating`, `tool_running:<tool>`, `tool_running:<n> tools`, `compacting`; cleared when
 *                          settled
 *   status `qd_model`      `{"provider":…,"model_id":…}` whenever another model is selected
 *   status `qd_tools`      `[{"name":…,"description":…}]`, all configured tools: at the start and when they changed.
 *                          It is also the sign that the bridge runs
 *   command `/qd-navigate` `{"id":…,"targetId":…,"options":{…}}` moves in the session tree;
 *   status `qd_navigated`  `{"id":…,"result":{cancelled,aborted?,editorText?}}` or `{"id":…,"error":…}` is its result
 *   status `qd_moved`      the entry pi is at now in the session tree, whoever moved it
 *   the title              of a dialog that begins with U+0001 `qd:asked:` says that this bridge waits for the answer
 *   `editor` dialogs       whose text begins with U+0001 `qd:interview:` are interviews: the questions follow as JSON,
 *                          and the answer is the JSON object of the answers
 *   the answer             U+0001 `qd:timed-out` to such a dialog, or to an interview, means that nobody answered in
 *                          time; the extension that asked gets an error. No other dialog may be answered so: to pi it
 *                          would be an answer, and to a `confirm` even a yes
 *
 * For other extensions it sets `globalThis.quarterdeck` (see docs/extensions.md). With `QD_UI_TIMEOUT_ERRORS=1` a
 * dialog whose own `timeout` passes is an error too, and `QD_UI_TIMEOUT_MS` is how long `qd` keeps any dialog open.
 *
 * Its hooks only watch: none returns anything, none throws, none waits. Without it `qd` still knows the phases from
 * pi's own events.
 */
import type { ExtensionAPI, ExtensionCommandContext, ExtensionContext } from "@earendil-works/pi-coding-agent";

const PHASE_KEY = "qd_phase";
const MODEL_KEY = "qd_model";
const TOOLS_KEY = "qd_tools";
const NAVIGATED_KEY = "qd_navigated";
const NAVIGATE_COMMAND = "qd-navigate";
const MOVED_KEY = "qd_moved";
const TIMED_OUT = "\u0001qd:timed-out";
const ASKED = "\u0001qd:asked:";
const INTERVIEW = "\u0001qd:interview:";

type Ui = ExtensionContext["ui"];

/** One field of an interview; the same as `InterviewQuestion` of Quarterdeck's protocol. */
interface Question {
  id: string;
  type?: "text" | "multiline" | "select" | "multiselect" | "confirm" | "number";
  question?: string;
  options?: string[];
  required?: boolean;
  placeholder?: string;
  default?: unknown;
}

interface Interview {
  title: string;
  questions: Question[];
  /** Milliseconds. */
  timeout?: number;
}

const timeoutsAreErrors = process.env.QD_UI_TIMEOUT_ERRORS === "1";
const openAtMost = Number(process.env.QD_UI_TIMEOUT_MS) || Number.POSITIVE_INFINITY;

/** pi's own editor in the running session; pi makes a new one with every conversation. */
let editor: Ui["editor"] | undefined;

const wrapped = new WeakSet<object>();

/**
 * Asks, and throws when the time is over: the runner says so with a mark, and the asker's own timer where that counts
 * as an error. pi resolves a dialog whose time is over as if it had been cancelled.
 */
async function ask<T>(own: number | undefined, dialog: () => Promise<T>): Promise<T> {
  const begun = Date.now();
  let expired = false;
  // Set before pi's own, and for the same time, so that it is the first to ring.
  const timer = own === undefined || !timeoutsAreErrors ? undefined : setTimeout(() => (expired = true), own);
  try {
    const answer = await dialog();
    if (answer === (TIMED_OUT as unknown) || (expired && !answer)) {
      const limit = Math.min(own ?? Number.POSITIVE_INFINITY, openAtMost);
      throw new Error(`UI request timed out after ${Number.isFinite(limit) ? limit : Date.now() - begun}ms`);
    }
    return answer;
  } finally {
    clearTimeout(timer);
  }
}

/**
 * All extensions share these methods, so wrapping them once is enough. Each marks what it asks: if one could not be
 * wrapped, the runner sees that by the missing mark and does not answer it in words only a wrapper understands.
 */
function adopt(ui: Ui): void {
  if (wrapped.has(ui)) return;
  editor = ui.editor.bind(ui);
  for (const name of ["select", "confirm", "input", "editor"] as const) {
    const dialog = ui[name] as (...args: unknown[]) => Promise<unknown>;
    const wrapper = (...args: unknown[]) => {
      const [title, ...rest] = args;
      const options = rest[1] as { timeout?: number } | undefined;
      // A title that is no text, or is marked already, stays as it is.
      const marked = typeof title === "string" && !title.startsWith(ASKED) ? ASKED + title : title;
      return ask(options?.timeout || undefined, () => dialog.call(ui, marked, ...rest));
    };
    (ui as unknown as Record<string, unknown>)[name] = wrapper;
  }
  wrapped.add(ui);
}

const text = (value: unknown) => (value === undefined || value === null ? undefined : String(value));

/** What the runner can read, whatever an extension has written. */
function readable(question: Question): Question {
  const { id, type, options, required, default: value } = question;
  return {
    id,
    type: text(type) as Question["type"],
    question: text(question.question),
    options: Array.isArray(options) ? options.map(String) : undefined,
    required: required === undefined ? undefined : Boolean(required),
    placeholder: text(question.placeholder),
    default: value,
  };
}

/** A time that timers understand: whole milliseconds, or none. */
function milliseconds(timeout: unknown): number | undefined {
  const number = Number(timeout);
  return number > 0 ? Math.min(Math.max(Math.round(number), 1), 2 ** 31 - 1) : undefined;
}

/** Asks several questions at once. The answers by the questions' ids, or nothing when a person would rather not. */
async function interview(form: Interview): Promise<Record<string, unknown> | undefined> {
  const show = editor;
  if (!show) throw new Error("There is nobody to ask yet; ask in a handler of an event or a command");
  const { title, questions } = form;
  const timeout = milliseconds(form.timeout);
  if (!Array.isArray(questions) || questions.some((question) => typeof question?.id !== "string")) {
    throw new TypeError("interview: 'questions' must be a list, and each question must have an 'id'");
  }
  const prefill = INTERVIEW + JSON.stringify({ questions: questions.map(readable), timeout });
  let timer: ReturnType<typeof setTimeout> | undefined;
  const dialog = () => {
    const answer = show(String(title), prefill);
    if (!timeout) return answer;
    // pi's editor has no time limit, so this one is ours.
    const over = new Promise<undefined>((resolve) => {
      timer = setTimeout(() => resolve(undefined), timeout);
    });
    return Promise.race([answer, over]);
  };
  try {
    const answer = await ask(timeout, dialog);
    return answer === undefined ? undefined : (JSON.parse(answer) as Record<string, unknown>);
  } finally {
    clearTimeout(timer);
  }
}

/** What a person gets back to edit when the conversation goes back before a message. */
function editorText(ctx: ExtensionCommandContext, targetId: string): string | undefined {
  // Already there: nothing moves.
  if (ctx.sessionManager.getLeafId() === targetId) return undefined;
  const entry = ctx.sessionManager.getEntry(targetId);
  let content: unknown;
  if (entry?.type === "message" && entry.message.role === "user") content = entry.message.content;
  else if (entry?.type === "custom_message") content = entry.content;
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return undefined;
  return content
    .filter((block) => block.type === "text")
    .map((block) => block.text)
    .join("");
}

export default function qdBridge(pi: ExtensionAPI) {
  /** Tool calls that run now, by id. Several run at once, so one that ends does not end the phase. */
  const running = new Map<string, string>();
  let working = false;
  let compacting = false;
  /** The last phase told: a status line is written only when something changed. */
  let told: string | undefined;
  let toldTools: string | undefined;
  /** Says whether the navigation under way was aborted. */
  let navigation: AbortSignal | undefined;

  (globalThis as Record<string, unknown>).quarterdeck = { interview };

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

  function tellTools(ctx: ExtensionContext): void {
    const tools = pi.getAllTools().map(({ name, description }) => ({ name, description: description ?? "" }));
    const now = JSON.stringify(tools);
    if (now === toldTools) return;
    toldTools = now;
    ctx.ui.setStatus(TOOLS_KEY, now);
  }

  function reset(): void {
    running.clear();
    working = false;
    compacting = false;
  }

  // A run may start again within one turn (retry, compaction, queued work); what ran before is over then.
  pi.on("agent_start", (_event, ctx) =>
    safely(() => {
      adopt(ctx.ui);
      reset();
      working = true;
      tell(ctx);
      tellTools(ctx);
    }),
  );

  pi.on("agent_settled", (_event, ctx) =>
    safely(() => {
      reset();
      tell(ctx);
      tellTools(ctx);
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

  // Another conversation: nothing of the old one runs on. The bridge is loaded first, so it has the dialogs before
  // anybody uses them.
  pi.on("session_start", (_event, ctx) =>
    safely(() => {
      adopt(ctx.ui);
      reset();
      tell(ctx);
      tellTools(ctx);
      // Other extensions may bring tools in this very event.
      setTimeout(() => safely(() => tellTools(ctx)), 0);
    }),
  );

  pi.on("model_select", (event, ctx) =>
    safely(() => {
      const { provider, id } = event.model;
      ctx.ui.setStatus(MODEL_KEY, JSON.stringify({ provider, model_id: id }));
    }),
  );

  pi.on("session_before_tree", (event) =>
    safely(() => {
      navigation = event.signal;
    }),
  );

  // Also when another extension has moved: nothing else tells.
  pi.on("session_tree", (event, ctx) => safely(() => ctx.ui.setStatus(MOVED_KEY, String(event.newLeafId))));

  pi.registerCommand(NAVIGATE_COMMAND, {
    description: "internal to Quarterdeck",
    handler: async (args, ctx) => {
      let id: unknown;
      let word: Record<string, unknown>;
      try {
        const order = JSON.parse(args);
        id = order.id;
        const options = Object.fromEntries(Object.entries(order.options ?? {}).filter(([, value]) => value !== null));
        const text = editorText(ctx, order.targetId);
        navigation = undefined;
        const { cancelled } = await ctx.navigateTree(order.targetId, options);
        const aborted = cancelled && (navigation as AbortSignal | undefined)?.aborted ? true : undefined;
        word = { result: { cancelled, aborted, editorText: cancelled ? undefined : text } };
      } catch (error) {
        word = { error: error instanceof Error ? error.message : String(error) };
      }
      ctx.ui.setStatus(NAVIGATED_KEY, JSON.stringify({ id, ...word }));
    },
  });
}
