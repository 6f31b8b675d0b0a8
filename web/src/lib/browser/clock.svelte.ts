import { createSubscriber } from "svelte/reactivity";

let now = Date.now();

/** Ticks once a second while somebody looks at it, and not in a hidden page. */
const subscribe = createSubscriber((update) => {
  const tick = (): void => {
    if (document.hidden) return;
    now = Date.now();
    update();
  };
  tick();
  const timer = setInterval(tick, 1000);
  document.addEventListener("visibilitychange", tick);
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", tick);
  };
});

/** The time, for "5 m ago" and running stopwatches: what reads it is drawn again each second. */
export const clock = {
  get now(): number {
    subscribe();
    return now;
  },
};
