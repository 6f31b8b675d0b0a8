/** Whether Cmd is what people of this machine press where others press Ctrl. */
export const isApple: boolean = /Mac|iPhone|iPad/.test(navigator.platform);

const words: Record<string, string> = {
  Mod: isApple ? "⌘" : "Ctrl",
  Shift: isApple ? "⇧" : "Shift",
  Alt: isApple ? "⌥" : "Alt",
  Enter: "↵",
  ArrowUp: "↑",
  ArrowDown: "↓",
  ArrowLeft: "←",
  ArrowRight: "→",
};

/** The words on the keys of "Mod+K" or "g f". */
export function keyWords(keys: string): string[] {
  return keys.split(/[+ ]/).map((key) => words[key] ?? key);
}

/** Whether keys go into a text, so that single letters are not shortcuts. */
export function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable || target.closest(".xterm")) return true;
  if (target instanceof HTMLInputElement) return !["checkbox", "radio", "button", "range", "file"].includes(target.type);
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}
