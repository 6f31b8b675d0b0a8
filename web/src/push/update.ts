import { mount } from "svelte";
import UpdateBar from "./UpdateBar.svelte";

let isOffered = false;

/** Says that a new version is there; the person chooses when to reload. */
export function offerReload(worker?: ServiceWorker): void {
  if (isOffered) return;
  isOffered = true;
  mount(UpdateBar, { target: document.body, props: { reload: () => reload(worker) } });
}

function reload(worker: ServiceWorker | undefined): void {
  if (!worker) return location.reload();
  // The new worker has the pages first, so that the reloaded page is of its build even without a network.
  navigator.serviceWorker.addEventListener("controllerchange", () => location.reload(), { once: true });
  worker.postMessage("activate");
  if (worker.state === "activated") location.reload();
}
