/** Every keyboard shortcut of the app, in one table: the shell listens to those with a name, the help shows all. */
export interface Shortcut {
  /** "Mod+K" is one press (Mod: Cmd on a Mac, else Ctrl), "g f" two presses one after the other. */
  keys: string;
  does: string;
  section: "App" | "Go to" | "Sessions" | "Conversation" | "Terminal" | "Files and changes" | "Lists and dialogs";
  /** Those of the shell; the others are listened to where they work. */
  name?: string;
  /** Works while typing too. */
  whileTyping?: boolean;
}

const table = [
  { keys: "Mod+K", does: "Go anywhere, do anything; type to find a session", section: "App", name: "palette", whileTyping: true },
  { keys: "?", does: "This help", section: "App", name: "help" },
  { keys: "t", does: "Light or dark", section: "App", name: "theme" },
  { keys: "g f", does: "Fleet", section: "Go to", name: "go-fleet" },
  { keys: "g a", does: "Approvals", section: "Go to", name: "go-approvals" },
  { keys: "g h", does: "History", section: "Go to", name: "go-history" },
  { keys: "g u", does: "Usage", section: "Go to", name: "go-usage" },
  { keys: "g s", does: "Settings", section: "Go to", name: "go-settings" },
  { keys: "n", does: "New session", section: "Sessions", name: "new-session" },
  { keys: "a", does: "The next session that needs you", section: "Sessions", name: "next-needing" },
  { keys: "]", does: "Next session", section: "Sessions", name: "next-session" },
  { keys: "[", does: "Previous session", section: "Sessions", name: "previous-session" },
  { keys: "/", does: "Search on this page", section: "Sessions", name: "search" },
  { keys: "1", does: "Conversation", section: "Sessions", name: "tab-conversation" },
  { keys: "2", does: "Terminal", section: "Sessions", name: "tab-terminal" },
  { keys: "3", does: "Files", section: "Sessions", name: "tab-files" },
  { keys: "4", does: "Changes", section: "Sessions", name: "tab-changes" },
  { keys: "Enter", does: "Send the message", section: "Conversation" },
  { keys: "Shift+Enter", does: "A new line in the message", section: "Conversation" },
  { keys: "Mod+Enter", does: "While the agent works: send after this turn", section: "Conversation" },
  { keys: "Esc Esc", does: "Stop the agent", section: "Conversation" },
  { keys: "Mod+F", does: "Search in the output", section: "Terminal" },
  { keys: "Mod+Shift+C", does: "Copy what is selected", section: "Terminal" },
  { keys: "Mod+Shift+L", does: "Leave the terminal; Tab is the program's", section: "Terminal" },
  { keys: "Mod+S", does: "Save the file", section: "Files and changes" },
  { keys: "Mod+Enter", does: "Save the comment", section: "Files and changes" },
  { keys: "Esc", does: "Close a list or a window", section: "Lists and dialogs" },
  { keys: "ArrowUp ArrowDown", does: "Move in lists", section: "Lists and dialogs" },
] as const satisfies readonly Shortcut[];

export const shortcuts: readonly Shortcut[] = table;
export type ShortcutName = Extract<(typeof table)[number], { name: string }>["name"];

/** What we read of a key. */
export type KeyPress = Pick<
  KeyboardEvent,
  "key" | "timeStamp" | "altKey" | "ctrlKey" | "metaKey" | "defaultPrevented" | "isComposing" | "repeat"
>;

/** A key as the table writes it. */
function keyOf(event: KeyPress): string {
  const key = event.key.length === 1 && event.key !== "?" ? event.key.toLowerCase() : event.key;
  const withModifier = event.metaKey || event.ctrlKey;
  return withModifier ? `Mod+${key.toUpperCase()}` : key;
}

/** How long the second press of "g f" may take. */
const SEQUENCE_MS = 1200;

/** Turns key presses into names of shortcuts. */
export class ShortcutReader {
  #before = "";
  #at = 0;

  read(event: KeyPress, isTyping: boolean): ShortcutName | undefined {
    if (event.defaultPrevented || event.isComposing || event.altKey || event.repeat) return undefined;
    const key = keyOf(event);
    const sequence = event.timeStamp - this.#at < SEQUENCE_MS ? `${this.#before} ${key}` : key;
    this.#before = key;
    this.#at = event.timeStamp;
    const found =
      shortcuts.find((shortcut) => shortcut.name && shortcut.keys === sequence) ??
      shortcuts.find((shortcut) => shortcut.name && shortcut.keys === key);
    if (!found || (isTyping && !found.whileTyping)) return undefined;
    this.#before = "";
    return found.name as ShortcutName;
  }
}
