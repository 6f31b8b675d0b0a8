import type { ModelInfo } from "@quarterdeck/client";
import { app } from "../lib/app.svelte.ts";

/** "provider/model" as people write it; a model may have slashes of its own. */
export function splitModel(typed: string): { provider?: string; model?: string } {
  const text = typed.trim();
  if (text === "") return {};
  const at = text.indexOf("/");
  return at < 0 ? { model: text } : { provider: text.slice(0, at), model: text.slice(at + 1) };
}

/** The models that were used with a harness, newest first. */
export function usedModels(harness: string): string[] {
  const used = app.sessions
    .filter((session) => session.harness === harness && session.model)
    .sort((one, other) => other.last_activity - one.last_activity)
    .map((session) => (session.provider ? `${session.provider}/${session.model}` : String(session.model)));
  return [...new Set(used)];
}

/** The models a harness has on a runner, as one of its sessions that is up tells them; nobody else can. */
export async function offeredModels(harness: string, runnerId: string, signal: AbortSignal): Promise<ModelInfo[]> {
  const up = app.sessions.find(
    (session) =>
      session.harness === harness && session.runner_id === runnerId && (session.state === "idle" || session.state === "working"),
  );
  if (!up) return [];
  return (await app.client.call("get_models", {}, { sessionId: up.session_id, signal })).models;
}
