import { SvelteMap } from "svelte/reactivity";

/** What the person has opened or closed. Rows come and go while one scrolls; this stays. */
const folds = new SvelteMap<string, boolean>();

export function isUnfolded(key: string, otherwise: boolean): boolean {
  return folds.get(key) ?? otherwise;
}

export function setUnfolded(key: string, isOpen: boolean): void {
  folds.set(key, isOpen);
}
