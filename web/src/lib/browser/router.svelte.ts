/** What `go` notes of an entry of the history; entries that it did not make have none of it. */
type HistoryState = { from?: string; scroll?: number } | null;

/** Where we are: the address bar is the only truth. */
class Route {
  path = $state(location.pathname);
  search = $state(location.search);
  /** How far down the page was when it was left: for coming back to the same place. */
  scroll = 0;

  get segments(): string[] {
    return this.path.split("/").filter((segment) => segment !== "").map(decoded);
  }

  get query(): URLSearchParams {
    return new URLSearchParams(this.search);
  }

  read(): void {
    this.path = location.pathname;
    this.search = location.search;
  }
}

/** Of an address that was typed or cut off, what cannot be read stays as it is: it leads to no page, and breaks none. */
function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

export const route = new Route();

/** Goes to a page of ours. */
export function go(path: string, options: { replace?: boolean } = {}): void {
  route.scroll = 0;
  const isHere = path === location.pathname + location.search + location.hash;
  if (options.replace || isHere) history.replaceState(null, "", path);
  else {
    history.replaceState({ ...(history.state as HistoryState), scroll: document.getElementById("main")?.scrollTop ?? 0 }, "");
    history.pushState({ from: location.pathname }, "", path);
  }
  route.read();
}

/** Goes to a page by going back, if that is where we came from: then it is as it was left. */
export function goBackTo(path: string): void {
  if ((history.state as HistoryState)?.from === path) history.back();
  else go(path);
}

addEventListener("popstate", (event: PopStateEvent) => {
  route.scroll = Number((event.state as HistoryState)?.scroll ?? 0);
  route.read();
});

/** Plain clicks on links of ours change the page without loading it anew. */
addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const link = event.target instanceof Element ? event.target.closest("a") : null;
  if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (/^\/(api|login|logout|ws|auth)(\/|$)/.test(link.pathname)) return;
  event.preventDefault();
  go(link.pathname + link.search + link.hash);
});
