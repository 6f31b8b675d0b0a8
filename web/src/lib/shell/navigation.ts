import type { IconName } from "../ui/icons.ts";

/** The pages of the app, as sidebar, bottom bar and palette list them. */
export interface NavigationPage {
  id: string;
  label: string;
  path: string;
  icon: IconName;
}

export const navigationPages = {
  fleet: { id: "fleet", label: "Fleet", path: "/", icon: "fleet" },
  approvals: { id: "approvals", label: "Approvals", path: "/approvals", icon: "inbox" },
  new: { id: "new", label: "New session", path: "/new", icon: "plus" },
  history: { id: "history", label: "History", path: "/history", icon: "history" },
  usage: { id: "usage", label: "Usage", path: "/usage", icon: "usage" },
  settings: { id: "settings", label: "Settings", path: "/settings", icon: "settings" },
} as const satisfies Record<string, NavigationPage>;

/** Which page a path belongs to. */
export function pageOf(segments: readonly string[]): string {
  const first = segments[0];
  if (first === undefined) return "fleet";
  return first === "s" ? "session" : first;
}
