/**
 * The service worker: the app starts without a network, and pushes become notifications that can be answered.
 * It never keeps anything of /api or /ws: what agents say is the hub's to show, and only while one is signed in.
 */
import {
  isResolution,
  notificationOf,
  readPayload,
  shows,
  tagOf,
  type NotificationData,
  type PushPayload,
} from "./push/notification.ts";
import { renew } from "./push/renew.ts";

declare const self: ServiceWorkerGlobalScope;
/** Written in by the build: the hash of everything built, and the files of the first page. */
declare const __SHELL__: { version: string; files: string[] };

const CACHE_PREFIX = "quarterdeck-shell-";
const cacheName = CACHE_PREFIX + __SHELL__.version;
const INDEX = "/index.html";
/** Paths of the hub itself; everything else is a page of the app. */
const OF_THE_HUB = /^\/(api|ws|auth|login|logout|healthz|metrics|runs|v[0-9]+)(\/|$)/;
/** A hub that does not answer a page by then is taken for away. */
const PAGE_WAIT_MS = 5000;

self.addEventListener("install", (event) => {
  event.waitUntil(keepShell());
});

self.addEventListener("activate", (event) => {
  event.waitUntil(Promise.all([dropOldShells(), self.clients.claim()]));
});

self.addEventListener("message", (event) => {
  const message: unknown = event.data;
  if (message === "activate") event.waitUntil(self.skipWaiting());
  // A page that already runs this version need not ask its person to reload.
  if (message === "files") event.ports[0]?.postMessage(__SHELL__.files);
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method !== "GET" || url.origin !== self.location.origin || OF_THE_HUB.test(url.pathname)) return;
  if (request.mode === "navigate") event.respondWith(page(request));
  else if (url.pathname.startsWith("/assets/")) event.respondWith(asset(request));
  else if (__SHELL__.files.includes(url.pathname)) event.respondWith(networkFirst(request));
});

self.addEventListener("push", (event) => {
  event.waitUntil(pushed(readPayload(event.data?.text())));
});

self.addEventListener("pushsubscriptionchange", (event) => {
  const change = event as PushSubscriptionChangeEvent;
  change.waitUntil(renew(self.registration.pushManager, change.oldSubscription?.endpoint));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const data = event.notification.data as NotificationData | null;
  event.waitUntil(clicked(event.action, data ?? { kind: "unknown", path: "/" }));
});

async function keepShell(): Promise<void> {
  const cache = await caches.open(cacheName);
  // Past the browser's own cache: a shell must not be of two builds.
  await cache.addAll(__SHELL__.files.map((file) => new Request(file, { cache: "reload" })));
}

async function dropOldShells(): Promise<void> {
  const names = await caches.keys();
  const old = names.filter((name) => name.startsWith(CACHE_PREFIX) && name !== cacheName);
  await Promise.all(old.map((name) => caches.delete(name)));
}

/** The page as the hub has it now, or the one that was kept when the hub cannot be reached. */
async function page(request: Request): Promise<Response> {
  try {
    return await fetch(request, { signal: AbortSignal.timeout(PAGE_WAIT_MS) });
  } catch {
    return (await kept(INDEX)) ?? Response.error();
  }
}

async function networkFirst(request: Request): Promise<Response> {
  try {
    return await fetch(request);
  } catch {
    return (await kept(request)) ?? Response.error();
  }
}

/** Names of assets carry their hash: what is kept under one is right for ever. */
async function asset(request: Request): Promise<Response> {
  const found = await kept(request);
  if (found) return found;
  const answer = await fetch(request);
  const type = answer.headers.get("content-type") ?? "";
  // A hub that has another build answers with its page; that is no script.
  if (answer.ok && !type.startsWith("text/html")) {
    const cache = await caches.open(cacheName);
    await cache.put(request, answer.clone());
  }
  return answer;
}

async function kept(request: Request | string): Promise<Response | undefined> {
  const cache = await caches.open(cacheName);
  return cache.match(request, { ignoreVary: true });
}

async function pushed(payload: PushPayload): Promise<void> {
  await showBadge(payload.badge);
  if (isResolution(payload)) return closeShown(payload);
  const pages = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  const isSeen = pages.some((page) => page.visibilityState === "visible" && shows(page.url, payload.session_id));
  if (isSeen) return;
  const { title, options } = notificationOf(payload);
  await self.registration.showNotification(title, options);
}

async function showBadge(count: number | undefined): Promise<void> {
  if (count === undefined || !("setAppBadge" in navigator)) return;
  try {
    await (count === 0 ? navigator.clearAppBadge() : navigator.setAppBadge(count));
  } catch {
    // The app is not installed: there is no icon to put a number on.
  }
}

async function closeShown(payload: PushPayload): Promise<void> {
  const tag = tagOf(payload);
  for (const notification of await self.registration.getNotifications()) {
    const data = notification.data as NotificationData | null;
    const isOfIt = payload.request_id !== undefined && data?.requestId === payload.request_id;
    if (notification.tag === tag || isOfIt) notification.close();
  }
}

async function clicked(action: string, data: NotificationData): Promise<void> {
  const isAnswer = action === "approve" || action === "deny";
  if (!isAnswer || data.answerToken === undefined) return open(data.path);
  const error = await answer(data.answerToken, action);
  if (error === undefined) return;
  await self.registration.showNotification("Your answer did not arrive", {
    body: `${error} Tap to open the session and answer there.`,
    tag: data.requestId ?? "answer-failed",
    icon: "/icon-192.png",
    badge: "/badge-96.png",
    data: { kind: "answer-failed", path: data.path },
    requireInteraction: true,
  });
}

/** Answers a question from its notification; tells what went wrong. */
async function answer(token: string, decision: "approve" | "deny"): Promise<string | undefined> {
  try {
    const reply = await fetch("/api/push/answer", {
      method: "POST",
      credentials: "same-origin",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ token, decision }),
    });
    if (reply.ok) return undefined;
    const said: unknown = await reply.json().catch(() => undefined);
    if (typeof said === "object" && said !== null && "error" in said && typeof said.error === "string") {
      return `${said.error.replace(/\.?$/, ".")}`;
    }
    return `The hub answered ${reply.status}.`;
  } catch {
    return "The hub cannot be reached.";
  }
}

/** Brings the app to the front at this page, or starts it there. */
async function open(path: string): Promise<void> {
  const pages = await self.clients.matchAll({ type: "window" });
  const target = pages.find((page) => new URL(page.url).pathname.startsWith(path)) ?? pages[0];
  if (!target) {
    await self.clients.openWindow(path);
    return;
  }
  // The page goes there by itself: loading it anew would lose what is being typed.
  target.postMessage({ type: "go", path });
  await target.focus();
}
