/** What this browser remembers between visits: themes, drafts, recent choices. Never anything secret. */
const prefix = "qd.";

export function recall<T>(name: string, otherwise: T): T {
  try {
    const text = localStorage.getItem(prefix + name);
    return text === null ? otherwise : (JSON.parse(text) as T);
  } catch {
    // Storage may be forbidden (private windows) or hold something of an older version: then we know nothing.
    return otherwise;
  }
}

export function remember(name: string, value: unknown): void {
  try {
    if (value === undefined) localStorage.removeItem(prefix + name);
    else localStorage.setItem(prefix + name, JSON.stringify(value));
  } catch {
    // A full or forbidden storage costs comfort, not work.
  }
}
