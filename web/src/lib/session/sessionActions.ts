import type { SessionSummary } from "@quarterdeck/client";
import { app, attempt, can, succeeds, toast } from "../app.svelte.ts";
import { titleOf } from "./groups.ts";
import { askText, confirm } from "../dialogs.svelte.ts";
import { go, route } from "../browser/router.svelte.ts";
import type { MenuItem } from "../ui/controls/menu.ts";

/** What can be done with a session from anywhere: rows, its header, the palette. */
export async function renameSession(session: SessionSummary): Promise<void> {
  const name = await askText({ title: "Rename session", label: "Title", value: session.title ?? "", action: "Rename" });
  if (name === undefined || name === "" || name === session.title) return;
  await attempt(
    () => app.client.call("set_session_name", { name }, { sessionId: session.session_id }),
    "The session was not renamed",
  );
}

export async function closeSession(session: SessionSummary): Promise<void> {
  if (session.state === "working") {
    if (!(await confirm({
      title: "Close a working session?",
      text: `“${titleOf(session)}” is still working. Closing it stops its agent. The conversation is kept, and you can reopen the session.`,
      action: "Close session",
      danger: true,
    }))) return;
  }
  const done = await succeeds(() => app.client.call("session.close", {}, { sessionId: session.session_id }), "The session was not closed");
  if (done) {
    toast(`Closed “${titleOf(session)}”`, { kind: "success", action: { label: "Reopen", run: () => void restartSession(session) } });
  }
}

export async function restartSession(session: SessionSummary): Promise<void> {
  const done = await succeeds(() => app.client.call("session.restart", {}, { sessionId: session.session_id }), "The session was not restarted");
  if (done) toast(`“${titleOf(session)}” is running again`, { kind: "success" });
}

export async function deleteSession(session: SessionSummary): Promise<void> {
  if (!(await confirm({
    title: "Delete session?",
    text: `“${titleOf(session)}” and all its messages will be deleted for everyone. Files it changed stay. This cannot be undone.`,
    action: "Delete session",
    danger: true,
  }))) return;
  const done = await succeeds(() => app.client.call("session.delete", {}, { sessionId: session.session_id }), "The session was not deleted");
  if (!done) return;
  if (route.segments[0] === "s" && route.segments[1] === session.session_id) go("/", { replace: true });
  toast(`Deleted “${titleOf(session)}”`, { kind: "success" });
}

/** The menu of a session; who may only look has none of it. */
export function sessionMenu(session: SessionSummary): MenuItem[] {
  if (!can("operate")) return [];
  const isClosed = session.state === "closed";
  return [
    { label: "Rename", icon: "edit", onselect: () => void renameSession(session) },
    {
      label: isClosed ? "Reopen" : "Restart",
      icon: "refresh",
      disabled: session.state === "offline",
      onselect: () => void restartSession(session),
    },
    {
      label: "Close",
      icon: "archive",
      disabled: isClosed || session.state === "offline",
      onselect: () => void closeSession(session),
    },
    "separator",
    { label: "Delete…", icon: "trash", danger: true, onselect: () => void deleteSession(session) },
  ];
}
