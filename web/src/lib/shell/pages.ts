import type { Component } from "svelte";
import FleetPage from "../../fleet/FleetPage.svelte";

type PageLoader = () => Promise<{ default: Component<Record<string, unknown>> }>;

export interface Page {
  /** A page with another key is made anew. */
  key: string;
  title: string;
  load: PageLoader;
  props: Record<string, unknown>;
  /** Of a session: whose, and which of its views. */
  sessionId?: string;
  tab?: string;
}

/** Pages have props of their own types; which ones go to which is decided here, in one place. */
function loader(load: () => Promise<{ default: unknown }>): PageLoader {
  return load as PageLoader;
}

const loaders = {
  // The first page of most visits: it comes with the shell.
  fleet: loader(() => Promise.resolve({ default: FleetPage })),
  conversation: loader(() => import("../../conversation/ConversationPage.svelte")),
  run: loader(() => import("../../terminal/RunPage.svelte")),
  terminal: loader(() => import("../../terminal/TerminalPage.svelte")),
  files: loader(() => import("../../files/FilesPage.svelte")),
  changes: loader(() => import("../../changes/ChangesPage.svelte")),
};

const simple: Record<string, { title: string; load: PageLoader }> = {
  new: { title: "New session", load: loader(() => import("../../new/NewSessionPage.svelte")) },
  approvals: { title: "Approvals", load: loader(() => import("../../approvals/ApprovalsPage.svelte")) },
  history: { title: "History", load: loader(() => import("../../history/HistoryPage.svelte")) },
  usage: { title: "Usage", load: loader(() => import("../../usage/UsagePage.svelte")) },
  settings: { title: "Settings", load: loader(() => import("../../settings/SettingsPage.svelte")) },
  welcome: { title: "Welcome", load: loader(() => import("../../welcome/WelcomePage.svelte")) },
};

/** The page of a path; nothing for a path that is nobody's. */
export function pageOf(segments: readonly string[], isRun: (sessionId: string) => boolean): Page | undefined {
  const [first, second, third] = segments;
  if (first === undefined) return { key: "fleet", title: "Fleet", load: loaders.fleet, props: {} };
  if (first === "s" && second !== undefined) return sessionPage(second, third, segments.slice(3), isRun(second));
  const page = simple[first];
  return page ? { key: first, props: {}, ...page } : undefined;
}

function sessionPage(sessionId: string, tab: string | undefined, rest: readonly string[], isRun: boolean): Page | undefined {
  const page = (name: "conversation" | "run" | "terminal" | "files" | "changes", title: string): Page => ({
    key: `${name}:${sessionId}`,
    title,
    load: loaders[name],
    props: { sessionId },
    sessionId,
    tab: name === "run" ? "conversation" : name,
  });
  if (tab === undefined) return isRun ? page("run", "") : page("conversation", "");
  if (tab === "terminal") return page("terminal", "Terminal");
  if (tab === "changes") return page("changes", "Changes");
  if (tab !== "files") return undefined;
  const files = page("files", "Files");
  return { ...files, props: { sessionId, path: rest.join("/") } };
}

const isPreloaded = new Set<string>();

/** Fetches a page that is most likely wanted next, so that it is there at once. */
export function preload(name: keyof typeof loaders): void {
  if (isPreloaded.has(name)) return;
  isPreloaded.add(name);
  // A preload that fails costs nothing: the page itself says so when it is wanted.
  loaders[name]().catch(() => isPreloaded.delete(name));
}
