/** The page's side of the service worker: registers it, goes where notifications lead, and says when a build is new. */
import { app } from "../lib/app.svelte.ts";
import { go } from "../lib/browser/router.svelte.ts";
import { install } from "./install.svelte.ts";
import { offerReload } from "./update.ts";

/** How often a page that stays open looks for a new build. */
const LOOK_EVERY_MS = 30 * 60 * 1000;

/** Called once, when the app starts. */
export function start(): void {
  install.watch();
  // A page of an older build asks for a part that the hub no longer has.
  addEventListener("vite:preloadError", () => offerReload());
  if (!import.meta.env.PROD || !("serviceWorker" in navigator)) return;
  navigator.serviceWorker.addEventListener("message", (event) => followNotification(event.data));
  void register();
}

function followNotification(message: unknown): void {
  if (typeof message !== "object" || message === null || !("type" in message) || message.type !== "go") return;
  if ("path" in message && typeof message.path === "string" && message.path.startsWith("/")) go(message.path);
}

async function register(): Promise<void> {
  let registration: ServiceWorkerRegistration;
  try {
    registration = await navigator.serviceWorker.register("/sw.js", { updateViaCache: "none" });
  } catch (error) {
    // Without it everything works but pushes and a start without a network; the settings say so.
    console.warn("The service worker could not be registered.", error);
    return;
  }
  watchForUpdates(registration);
  closeAnswered(registration);
}

function watchForUpdates(registration: ServiceWorkerRegistration): void {
  if (registration.waiting) void greet(registration.waiting);
  registration.addEventListener("updatefound", () => {
    const coming = registration.installing;
    coming?.addEventListener("statechange", () => {
      // Without a controller it is the first one, which takes over by itself.
      if (coming.state === "installed" && navigator.serviceWorker.controller) void greet(coming);
    });
  });
  // A look that fails is made again: at the next reconnect, when the page is looked at, or in half an hour.
  const look = () => void registration.update().catch(() => undefined);
  setInterval(look, LOOK_EVERY_MS);
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") look();
  });
  app.client.onConnection((info) => {
    if (info.state === "live") look();
  });
}

/** A new worker waits: a page that is already of its build lets it in, an older one asks its person. */
async function greet(worker: ServiceWorker): Promise<void> {
  const files = await filesOf(worker);
  const scripts = [...document.querySelectorAll<HTMLScriptElement>("script[type=module][src]")];
  const isOurs = scripts.some((script) => files.includes(new URL(script.src).pathname));
  if (isOurs) worker.postMessage("activate");
  else offerReload(worker);
}

/** What the worker keeps of the first page. */
function filesOf(worker: ServiceWorker): Promise<string[]> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    const timer = setTimeout(() => resolve([]), 3000);
    port1.onmessage = (event: MessageEvent<unknown>) => {
      clearTimeout(timer);
      const files = event.data;
      resolve(Array.isArray(files) ? files.filter((file) => typeof file === "string") : []);
    };
    worker.postMessage("files", [port2]);
  });
}

/** Takes notifications down whose questions were answered elsewhere while this page is open. */
function closeAnswered(registration: ServiceWorkerRegistration): void {
  const { fleet } = app.client;
  let waiting = new Set<string>();
  const look = () => {
    const now = new Set([...fleet.sessions.values()].filter((one) => one.pending_input_count > 0).map((one) => one.session_id));
    const answered = [...waiting].filter((sessionId) => !now.has(sessionId));
    waiting = now;
    if (answered.length > 0) void closeOf(registration, answered);
  };
  fleet.onChange(look);
  look();
}

async function closeOf(registration: ServiceWorkerRegistration, sessionIds: string[]): Promise<void> {
  for (const notification of await registration.getNotifications()) {
    const data: unknown = notification.data;
    if (typeof data !== "object" || data === null || !("sessionId" in data) || !("kind" in data)) continue;
    const asks = data.kind === "approval" || data.kind === "question";
    if (asks && typeof data.sessionId === "string" && sessionIds.includes(data.sessionId)) notification.close();
  }
}
