import { onDestroy, type Snippet } from "svelte";
import type { MenuItem } from "../ui/controls/menu.ts";

export interface HeaderExtras {
  /** Shown at the right of the header. */
  actions?: Snippet;
  /** Shown at the top of its menu. */
  items?: () => MenuItem[];
}

class SessionHeaderState {
  extras = $state.raw<HeaderExtras>({});
}

export const sessionHeader = new SessionHeaderState();

/** Adds a page's own actions to the header of the session, for as long as the page is there. */
export function useSessionHeader(extras: HeaderExtras): void {
  sessionHeader.extras = extras;
  onDestroy(() => {
    if (sessionHeader.extras === extras) sessionHeader.extras = {};
  });
}
