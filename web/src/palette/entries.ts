import { app, can, toast } from "../lib/app.svelte.ts";
import { errorText, harnessName, shortPath } from "../lib/format.ts";
import { groupOrder, runnerName, statusWord, titleOf, toneOf } from "../lib/session/groups.ts";
import { fuzzy } from "../lib/fuzzy.ts";
import { go, route } from "../lib/browser/router.svelte.ts";
import { sessionMenu } from "../lib/session/sessionActions.ts";
import { navigationPages } from "../lib/shell/navigation.ts";
import { sidebarOrder } from "../lib/shell/order.ts";
import { theme } from "../lib/browser/theme.svelte.ts";
import type { IconName } from "../lib/ui/icons.ts";
import { startDemo } from "../new/create.ts";

/** Something the palette can do or go to. */
export interface PaletteEntry {
  id: string;
  section: "Sessions" | "This session" | "Go to" | "Actions" | "History";
  label: string;
  /** Said beside it, and searched too. */
  detail?: string;
  icon?: IconName;
  tone?: ReturnType<typeof toneOf>;
  keys?: string;
  run: () => void;
}

function sessionEntries(): PaletteEntry[] {
  const openId = route.segments[0] === "s" ? route.segments[1] : undefined;
  return groupOrder
    .flatMap((group) => sidebarOrder(app.sessions, group))
    .filter((session) => session.session_id !== openId)
    .map((session) => ({
      id: `session:${session.session_id}`,
      section: "Sessions" as const,
      label: titleOf(session),
      detail: [
        statusWord(session),
        harnessName(session.harness, session.run_tool),
        runnerName(app.runner(session.runner_id), session.runner_id),
        session.cwd ? shortPath(session.cwd) : "",
        session.branch ?? "",
      ]
        .filter(Boolean)
        .join(" · "),
      tone: toneOf(session),
      run: () => go(`/s/${encodeURIComponent(session.session_id)}`),
    }));
}

function thisSession(): PaletteEntry[] {
  const session = route.segments[0] === "s" ? app.session(route.segments[1] ?? "") : undefined;
  if (!session) return [];
  const base = `/s/${encodeURIComponent(session.session_id)}`;
  const views: [string, IconName, string, string][] = [
    ["Conversation", "message", base, "1"],
    ["Terminal", "terminal", `${base}/terminal`, "2"],
    ["Files", "folder", `${base}/files`, "3"],
    ["Changes", "diff", `${base}/changes`, "4"],
  ];
  const entries: PaletteEntry[] = views.map(([label, icon, path, keys]) => ({
    id: `view:${label}`,
    section: "This session",
    label,
    icon,
    keys,
    run: () => go(path),
  }));
  for (const item of sessionMenu(session)) {
    if (item === "separator" || item.disabled || !item.onselect) continue;
    const entry: PaletteEntry = { id: `do:${item.label}`, section: "This session", label: `${item.label.replace("…", "")} this session`, run: item.onselect };
    if (item.icon) entry.icon = item.icon;
    entries.push(entry);
  }
  return entries;
}

function goEntries(): PaletteEntry[] {
  const keys: Record<string, string> = { fleet: "g f", approvals: "g a", new: "n", history: "g h", usage: "g u", settings: "g s" };
  return Object.values(navigationPages)
    .filter((page) => page.id !== "new" || can("operate"))
    .map((page) => {
      const entry: PaletteEntry = { id: `page:${page.id}`, section: "Go to", label: page.label, icon: page.icon, run: () => go(page.path) };
      const key = keys[page.id];
      if (key) entry.keys = key;
      return entry;
    });
}

function actionEntries(onhelp: () => void): PaletteEntry[] {
  const next = sidebarOrder(app.sessions, "needs")[0];
  const entries: PaletteEntry[] = [];
  if (next) {
    entries.push({
      id: "next-needing",
      section: "Actions",
      label: "Go to the next session that needs you",
      detail: titleOf(next),
      icon: "bell",
      keys: "a",
      run: () => go(`/s/${encodeURIComponent(next.session_id)}`),
    });
  }
  if (can("operate")) {
    entries.push({
      id: "demo",
      section: "Actions",
      label: "Start the demo",
      icon: "play",
      run: () => void startDemo().catch((error: unknown) => toast(`The demo was not started: ${errorText(error)}`, { kind: "error" })),
    });
  }
  entries.push(
    {
      id: "theme",
      section: "Actions",
      label: theme.isDark ? "Light theme" : "Dark theme",
      icon: theme.isDark ? "sun" : "moon",
      keys: "t",
      run: () => (theme.choice = theme.isDark ? "light" : "dark"),
    },
    { id: "help", section: "Actions", label: "Keyboard shortcuts", icon: "command", keys: "?", run: onhelp },
    { id: "sign-out", section: "Actions", label: "Sign out", icon: "log-out", run: () => void app.signOut() },
  );
  return entries;
}

/** Everything there is, in the order shown while nothing is typed: sessions first, so that it is a session switcher. */
export function allEntries(onhelp: () => void): PaletteEntry[] {
  return [...sessionEntries(), ...thisSession(), ...goEntries(), ...actionEntries(onhelp)];
}

/** At most so many of each section while nothing is typed. */
const SHORT = 8;
const MOST = 40;

/** What matches, best first; the words said beside an entry count less than its name. */
export function findEntries(entries: readonly PaletteEntry[], typed: string): PaletteEntry[] {
  if (typed.trim() === "") {
    const counts = new Map<string, number>();
    return entries.filter((entry) => {
      const count = (counts.get(entry.section) ?? 0) + 1;
      counts.set(entry.section, count);
      return count <= SHORT;
    });
  }
  const found = entries.flatMap((entry) => {
    const byName = fuzzy(typed, entry.label);
    const byDetail = entry.detail ? fuzzy(typed, entry.detail) : undefined;
    const score = Math.max(byName?.score ?? -Infinity, (byDetail?.score ?? -Infinity) * 0.5);
    return score > -Infinity ? [{ entry, score }] : [];
  });
  found.sort((one, other) => other.score - one.score);
  const best = found.slice(0, MOST).map(({ entry }) => entry);
  const history: PaletteEntry = {
    id: "history-search",
    section: "History",
    label: `Search all conversations for “${typed.trim()}”`,
    icon: "history",
    run: () => go(`/history?q=${encodeURIComponent(typed.trim())}`),
  };
  return [...best, history];
}
