/** Keeps a device subscribed when its push service gives it another address. Only the service worker imports it. */

interface DeviceSubscription {
  id: string;
  endpoint: string;
  label: string;
  topics: string[];
  content: boolean;
}

interface PushState {
  public_key: string;
  subscriptions: DeviceSubscription[];
}

async function ask(method: string, path: string, body?: unknown): Promise<unknown> {
  const init: RequestInit = { method, credentials: "same-origin" };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { "content-type": "application/json" };
  }
  const answer = await fetch(path, init);
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status}`);
  return answer.json();
}

/** Subscribes anew with what the person had chosen for the old subscription. Signed out, nothing is to be done. */
export async function renew(manager: PushManager, oldEndpoint: string | undefined): Promise<void> {
  const state = (await ask("GET", "/api/push")) as PushState;
  const old = state.subscriptions.find((subscription) => subscription.endpoint === oldEndpoint);
  // Without the old one it is not known that the person wants any on this device.
  if (!old) return;
  const subscription = await manager.subscribe({ userVisibleOnly: true, applicationServerKey: state.public_key });
  const { endpoint, keys } = subscription.toJSON();
  const { label, topics, content } = old;
  await ask("POST", "/api/push/subscriptions", { endpoint, keys, label, topics, content });
  if (endpoint !== oldEndpoint) await ask("DELETE", `/api/push/subscriptions/${encodeURIComponent(old.id)}`);
}
