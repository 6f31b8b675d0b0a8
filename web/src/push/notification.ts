/** What a push becomes on the screen. Pure, so that it is tested without a browser; only the service worker imports it. */

/** What the hub sends, after decryption. Without the person's leave it names no title and no text. */
export interface PushPayload {
  kind: string;
  session_id?: string;
  title?: string;
  body?: string;
  tag?: string;
  request_id?: string;
  /** Good for answering this one question, once. */
  answer_token?: string;
  /** How many sessions need the person. */
  badge?: number;
}

/** What the notification carries back when it is clicked. */
export interface NotificationData {
  kind: string;
  path: string;
  sessionId?: string;
  requestId?: string;
  answerToken?: string;
}

export interface NotificationAction {
  action: string;
  title: string;
}

export interface ShownNotification {
  title: string;
  options: {
    body: string;
    tag: string;
    icon: string;
    badge: string;
    data: NotificationData;
    actions: NotificationAction[];
    requireInteraction: boolean;
    renotify: boolean;
  };
}

/** The words for a push that may not say what it is about. */
const GENERIC: Record<string, { title: string; body: string }> = {
  approval: { title: "An agent asks for approval", body: "Open Quarterdeck to see what it wants to do." },
  question: { title: "An agent has a question", body: "Open Quarterdeck to answer it." },
  done: { title: "An agent is done", body: "Open Quarterdeck to read what it did." },
  failed: { title: "An agent has failed", body: "Open Quarterdeck to see what happened." },
  test: { title: "Notifications work", body: "This device will tell you when an agent needs you." },
};
const UNKNOWN = { title: "Quarterdeck", body: "Something happened in one of your sessions." };

/** Reads what came; what cannot be read still has to be shown as something. */
export function readPayload(text: string | undefined): PushPayload {
  if (text === undefined || text === "") return { kind: "unknown" };
  try {
    const parsed: unknown = JSON.parse(text);
    if (typeof parsed !== "object" || parsed === null) return { kind: "unknown" };
    return cleaned(parsed as Record<string, unknown>);
  } catch {
    return { kind: "unknown" };
  }
}

function cleaned(fields: Record<string, unknown>): PushPayload {
  const payload: PushPayload = { kind: words(fields["kind"]) ?? "unknown" };
  const names = ["session_id", "title", "body", "tag", "request_id", "answer_token"] as const;
  for (const name of names) {
    const value = words(fields[name]);
    if (value !== undefined) payload[name] = value;
  }
  const badge = fields["badge"];
  if (typeof badge === "number" && Number.isInteger(badge) && badge >= 0) payload.badge = badge;
  return payload;
}

function words(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** Whether it says only that a question is answered, so that what was shown for it can go. */
export function isResolution(payload: PushPayload): boolean {
  return payload.kind === "resolved";
}

/** The page a notification opens. */
export function pathOf(sessionId: string | undefined): string {
  return sessionId === undefined ? "/" : `/s/${encodeURIComponent(sessionId)}`;
}

/** Whether a page at this address shows this session to the person. */
export function shows(url: string, sessionId: string | undefined): boolean {
  if (sessionId === undefined) return false;
  const path = new URL(url).pathname;
  const own = pathOf(sessionId);
  return path === own || path.startsWith(`${own}/`);
}

export function tagOf(payload: PushPayload): string {
  return payload.tag ?? payload.request_id ?? `${payload.kind}:${payload.session_id ?? ""}`;
}

/** Of an end the hub tells whose it is; how it ended is for us to say. */
function titleOf({ kind, title }: PushPayload): string | undefined {
  if (title === undefined) return undefined;
  if (kind === "done") return `Done: ${title}`;
  return kind === "failed" ? `Failed: ${title}` : title;
}

/** The answers that a tap can give, in the words of the question. */
function answersOf(kind: string): NotificationAction[] {
  const [yes, no] = kind === "approval" ? (["Approve", "Deny"] as const) : (["Yes", "No"] as const);
  return [
    { action: "approve", title: yes },
    { action: "deny", title: no },
  ];
}

export function notificationOf(payload: PushPayload): ShownNotification {
  const generic = GENERIC[payload.kind] ?? UNKNOWN;
  const asks = payload.kind === "approval" || payload.kind === "question";
  const data: NotificationData = { kind: payload.kind, path: pathOf(payload.session_id) };
  if (payload.session_id !== undefined) data.sessionId = payload.session_id;
  if (payload.request_id !== undefined) data.requestId = payload.request_id;
  if (payload.answer_token !== undefined) data.answerToken = payload.answer_token;
  return {
    title: titleOf(payload) ?? generic.title,
    options: {
      body: payload.body ?? (payload.title === undefined ? generic.body : ""),
      tag: tagOf(payload),
      icon: "/icon-192.png",
      badge: "/badge-96.png",
      data,
      actions: payload.answer_token === undefined ? [] : answersOf(payload.kind),
      // What waits for the person stays until they have seen it.
      requireInteraction: asks,
      renotify: asks,
    },
  };
}
