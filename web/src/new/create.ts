import type { ImageAttachment, SessionConfig } from "@quarterdeck/client";
import { app } from "../lib/app.svelte.ts";
import { go } from "../lib/browser/router.svelte.ts";

/** What is sent to a new session as soon as it is there. */
export interface FirstPrompt {
  text: string;
  images: ImageAttachment[];
}

/**
 * Makes a session, sends its first prompt and goes there. The prompt has its own identity and is sent once, whatever
 * happens to the connection; the conversation shows it waiting.
 */
export async function createSession(config: SessionConfig, runnerId: string | undefined, first?: FirstPrompt): Promise<void> {
  const created = await app.client.call("session.create", { config }, runnerId ? { runnerId } : {});
  const sessionId = created.session_id;
  if (first && (first.text !== "" || first.images.length > 0)) {
    const model = app.client.session(sessionId);
    model.send(first.text, { kind: "prompt", images: first.images });
    // The conversation follows the same model; ours goes when it has had the time to come.
    setTimeout(() => model.release(), 5_000);
  }
  // Which page a session has depends on its harness, which the fleet knows.
  if (!app.client.fleet.sessions.has(sessionId)) await app.client.fleet.refresh();
  go(`/s/${encodeURIComponent(sessionId)}`);
}

/** The demo: an agent without a model that shows everything. */
export async function startDemo(): Promise<void> {
  const runner = app.runners.find((one) => one.status === "online" && one.harnesses.includes("demo"));
  await createSession({ harness: "demo", title: "Demo" }, runner?.runner_id, { text: "Hello! What can you do?", images: [] });
}
