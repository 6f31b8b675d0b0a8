/** Notifications on this device: whether they can be had, are had, and on which other devices. */
import type { ChangePushSubscription, PushState, PushSubscriptionInfo, PushTested, PushTopic } from "@quarterdeck/client";
import { errorText } from "../lib/format.ts";
import { rest, RestError } from "../lib/rest.ts";
import { install } from "./install.svelte.ts";

/** Why this device cannot be told anything; `ready` when it can. */
export type Support = "ready" | "insecure" | "unsupported" | "install-first" | "denied" | "no-worker";

export const TOPICS: readonly { topic: PushTopic; label: string; hint: string }[] = [
  { topic: "approval", label: "Approvals", hint: "An agent wants to do something and waits for your permission." },
  { topic: "question", label: "Questions", hint: "An agent asks you to choose, confirm or write something." },
  { topic: "done", label: "Done", hint: "An agent has finished a turn that took a while." },
  { topic: "failed", label: "Failed", hint: "An agent, or its turn, has failed." },
];
const ALL_TOPICS = TOPICS.map(({ topic }) => topic);
/** A service worker that is not there by then is not coming. */
const WORKER_WAIT_MS = 4000;

class PushDevice {
  state = $state.raw<PushState | undefined>();
  support = $state<Support>("ready");
  permission = $state<NotificationPermission>("default");
  isBusy = $state(false);
  error = $state<string | undefined>();
  #endpoint = $state<string | undefined>();

  /** This device among those of the person. */
  own: PushSubscriptionInfo | undefined = $derived(
    this.state?.subscriptions.find((subscription) => subscription.endpoint === this.#endpoint),
  );
  others: PushSubscriptionInfo[] = $derived(
    this.state?.subscriptions.filter((subscription) => subscription.endpoint !== this.#endpoint) ?? [],
  );

  /** Looks at browser and hub. */
  async load(): Promise<void> {
    await this.#run(async () => {
      this.support = supportOfBrowser();
      if ("Notification" in globalThis) this.permission = Notification.permission;
      if (this.support === "ready" || this.support === "denied") {
        const registration = await worker();
        if (!registration) this.support = "no-worker";
        this.#endpoint = (await registration?.pushManager.getSubscription())?.endpoint;
      }
      this.state = await rest<PushState>("GET", "/api/push");
    });
  }

  async subscribe(): Promise<void> {
    await this.#run(async () => {
      this.permission = await Notification.requestPermission();
      this.support = supportOfBrowser();
      if (this.permission !== "granted") return;
      const registration = await worker();
      if (!registration) {
        this.support = "no-worker";
        return;
      }
      const { public_key } = this.state ?? (await rest<PushState>("GET", "/api/push"));
      const subscription = await subscribed(registration, public_key);
      const { endpoint, keys } = subscription.toJSON();
      const body = { endpoint, keys: { p256dh: keys?.["p256dh"], auth: keys?.["auth"] }, topics: ALL_TOPICS, content: false };
      try {
        await rest("POST", "/api/push/subscriptions", { ...body, label: deviceName() });
      } catch (error) {
        // The hub does not know it: the browser must not keep it.
        await subscription.unsubscribe();
        throw error;
      }
      this.#endpoint = endpoint;
      await this.#read();
    });
  }

  async unsubscribe(): Promise<void> {
    await this.#run(async () => {
      const own = this.own;
      const registration = await worker();
      await (await registration?.pushManager.getSubscription())?.unsubscribe();
      if (own) await this.#forget(own.id);
      this.#endpoint = undefined;
      await this.#read();
    });
  }

  async change(id: string, change: ChangePushSubscription): Promise<void> {
    await this.#run(async () => {
      await rest("PATCH", `/api/push/subscriptions/${encodeURIComponent(id)}`, change);
      await this.#read();
    });
  }

  async remove(id: string): Promise<void> {
    await this.#run(async () => {
      await this.#forget(id);
      await this.#read();
    });
  }

  /** Sends a push to a device; tells what its push service said against it. */
  async test(id: string): Promise<string | undefined> {
    let refusal: string | undefined;
    await this.#run(async () => {
      const { results } = await rest<PushTested>("POST", "/api/push/test", { id });
      const failed = results.find((result) => !result.ok);
      refusal = failed && (failed.error ?? "The push service did not take it.");
      await this.#read();
    });
    return refusal ?? this.error;
  }

  async #read(): Promise<void> {
    this.state = await rest<PushState>("GET", "/api/push");
  }

  async #forget(id: string): Promise<void> {
    try {
      await rest("DELETE", `/api/push/subscriptions/${encodeURIComponent(id)}`);
    } catch (error) {
      // Gone is what was wanted.
      if (!(error instanceof RestError && error.code === "not_found")) throw error;
    }
  }

  async #run(action: () => Promise<void>): Promise<void> {
    this.isBusy = true;
    this.error = undefined;
    try {
      await action();
    } catch (error) {
      this.error = errorText(error);
    } finally {
      this.isBusy = false;
    }
  }
}

export const device = new PushDevice();

function supportOfBrowser(): Support {
  if (!isSecureContext) return "insecure";
  // Safari on phones has it only in apps on the home screen.
  if (!("PushManager" in globalThis)) return install.byHand && !install.installed ? "install-first" : "unsupported";
  if (!("serviceWorker" in navigator) || !("Notification" in globalThis)) return "unsupported";
  return Notification.permission === "denied" ? "denied" : "ready";
}

/** The worker's registration, once it is active. */
async function worker(): Promise<ServiceWorkerRegistration | undefined> {
  const late = new Promise<undefined>((resolve) => setTimeout(() => resolve(undefined), WORKER_WAIT_MS));
  return Promise.race([navigator.serviceWorker.ready, late]);
}

async function subscribed(registration: ServiceWorkerRegistration, publicKey: string): Promise<PushSubscription> {
  const options = { userVisibleOnly: true, applicationServerKey: publicKey };
  try {
    return await registration.pushManager.subscribe(options);
  } catch (error) {
    if (!(error instanceof DOMException)) throw error;
    if (error.name === "AbortError") {
      throw new Error("The browser's own push service could not be reached. Check the network and try again.", { cause: error });
    }
    if (error.name !== "InvalidStateError") throw error;
    // There is one for another hub's key, which is of no use any more.
    await (await registration.pushManager.getSubscription())?.unsubscribe();
    return registration.pushManager.subscribe(options);
  }
}

/** What the list of devices calls this one. */
function deviceName(): string {
  const agent = navigator.userAgent;
  const system = /iPhone|iPad|Android|Windows|Macintosh|CrOS|Linux/.exec(agent)?.[0] ?? "device";
  const browser = /Edg|Firefox|OPR|Chrome|Safari/.exec(agent)?.[0] ?? "browser";
  const names: Record<string, string> = { Edg: "Edge", OPR: "Opera", Macintosh: "Mac", CrOS: "Chromebook" };
  return `${names[browser] ?? browser} on ${names[system] ?? system}`;
}
