import { Quarterdeck } from "@quarterdeck/client";
import type { ConnectionInfo, ErrorCode, Me, RunnerInfo, SessionSummary } from "@quarterdeck/client";
import { onDestroy } from "svelte";
import { coalesced } from "./browser/coalesced.ts";
import { errorText } from "./format.ts";
import { groupOf } from "./session/groups.ts";
import { recall, remember } from "./browser/localStorage.ts";
import { RestError, rest } from "./rest.ts";
import { SessionView } from "./session/view.svelte.ts";
import { type ToastOptions, toasts } from "./toasts.svelte.ts";

type Permission = Me["permissions"][number];

/** What the hub answers somebody whom it does not let in. */
const SIGNED_OUT: ReadonlySet<ErrorCode | undefined> = new Set(["not_logged_in", "permission_denied", "forbidden_origin"]);

/** What the whole app shows: the connection, the fleet and who we are. */
class App {
  readonly client: Quarterdeck = new Quarterdeck();
  connection = $state.raw<ConnectionInfo>({ state: "connecting", since: Date.now(), attempts: 0 });
  pendingCalls = $state(0);
  sessions = $state.raw<SessionSummary[]>([]);
  runners = $state.raw<RunnerInfo[]>([]);
  fleetLoaded = $state(false);
  /** Who we are; nobody while that is asked for, or when we are signed out. */
  me = $state.raw<Me | undefined>();
  isSignedOut = $state(false);
  /** Whether we know who we are, or may guess it: a browser that was never signed in sees nothing before it is asked to. */
  isKnown = $state(recall("signedIn", false));
  /** Questions that wait for an answer. */
  questionCount: number = $derived(this.sessions.reduce((sum, session) => sum + session.pending_input_count, 0));
  needsYou: SessionSummary[] = $derived(this.sessions.filter((session) => groupOf(session) === "needs"));

  /** Called once, when the page starts. */
  start(): void {
    const { client } = this;
    client.onConnection((info) => {
      this.connection = info;
      if (info.state === "refused" || (info.state === "live" && !this.me)) void this.loadMe();
    });
    client.onPendingCalls((count) => (this.pendingCalls = count));
    client.fleet.onChange(coalesced(() => this.#readFleet()));
    client.onSystem((frame) => {
      if (frame.type === "notice") toast(frame.message);
      if (frame.type === "shutdown") toast(`The hub is shutting down: ${frame.reason}`);
    });
    // What nobody caught is said at least, instead of lost.
    addEventListener("unhandledrejection", ({ reason }) => {
      if (!(reason instanceof DOMException && reason.name === "AbortError")) toast(errorText(reason), { kind: "error" });
    });
    // Who was signed in most likely still is: no time is lost. The hub refuses who is not.
    const isLikely = this.isKnown;
    if (isLikely) client.connect();
    void this.loadMe().then(() => {
      if (!this.isSignedOut && !isLikely) client.connect();
    });
  }

  #readFleet(): void {
    const { fleet } = this.client;
    // The list is read anew as a whole: what did not change stays the same object, and is not drawn again.
    const before = new Map(this.sessions.map((session) => [session.session_id, session]));
    this.sessions = [...fleet.sessions.values()].map((session) => {
      const known = before.get(session.session_id);
      return known && known !== session && JSON.stringify(known) === JSON.stringify(session) ? known : session;
    });
    this.runners = [...fleet.runners.values()];
    this.fleetLoaded = fleet.loaded;
  }

  /** Asks the hub who we are. Signed out is an answer; a hub that cannot be reached is not. */
  async loadMe(): Promise<void> {
    try {
      this.me = await rest<Me>("GET", "/api/me");
      this.isSignedOut = false;
      remember("signedIn", true);
    } catch (error) {
      if (!(error instanceof RestError && SIGNED_OUT.has(error.code))) return;
      this.me = undefined;
      this.isSignedOut = true;
      remember("signedIn", undefined);
    } finally {
      this.isKnown = true;
    }
  }

  /** After a sign-in: everything is read anew. */
  async signedIn(): Promise<void> {
    await this.loadMe();
    if (!this.isSignedOut) this.client.connect();
  }

  async signOut(): Promise<void> {
    await fetch("/logout", { method: "POST", credentials: "same-origin" });
    // Everything in memory was for whoever signed out; a page loaded anew has none of it.
    location.assign("/welcome");
  }

  session(sessionId: string): SessionSummary | undefined {
    return this.sessions.find((session) => session.session_id === sessionId);
  }

  runner(runnerId: string): RunnerInfo | undefined {
    return this.runners.find((runner) => runner.runner_id === runnerId);
  }
}

export const app = new App();

/** Follows a session for as long as the calling component is there. Call it while the component is made. */
export function useSession(sessionId: string): SessionView {
  const view = new SessionView(app.client.session(sessionId));
  onDestroy(() => view.release());
  return view;
}

/** Says something at the edge of the screen. */
export function toast(text: string, options?: ToastOptions): void {
  toasts.add(text, options);
}

/** Whether we may do it; for showing things, the hub decides. */
export function can(permission: Permission): boolean {
  return app.me?.permissions.includes(permission) ?? false;
}

/** As `attempt`, for what has no result: whether it went well. */
export async function succeeds(action: () => Promise<unknown>, failure: string): Promise<boolean> {
  return (await attempt(() => action().then(() => true), failure)) === true;
}

/** Runs something that may fail and shows why it did: `attempt(() => …, "The session was not renamed")`. */
export async function attempt<T>(action: () => Promise<T>, failure: string): Promise<T | undefined> {
  try {
    return await action();
  } catch (error) {
    if (!(error instanceof DOMException && error.name === "AbortError")) {
      toast(`${failure}: ${errorText(error)}`, { kind: "error" });
    }
    return undefined;
  }
}
