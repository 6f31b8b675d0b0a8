import { describe, expect, it } from "vitest";
import { type KeyPress, ShortcutReader, shortcuts } from "./shortcuts.ts";

function press(key: string, timeStamp: number, more: Partial<KeyPress> = {}): KeyPress {
  return {
    key,
    timeStamp,
    altKey: false,
    ctrlKey: false,
    metaKey: false,
    defaultPrevented: false,
    isComposing: false,
    repeat: false,
    ...more,
  };
}

describe("shortcuts", () => {
  it("reads one press, and two one after the other", () => {
    const reader = new ShortcutReader();
    expect(reader.read(press("k", 0, { ctrlKey: true }), true)).toBe("palette");
    expect(reader.read(press("?", 10), false)).toBe("help");
    expect(reader.read(press("g", 5_000), false)).toBeUndefined();
    expect(reader.read(press("a", 5_300), false)).toBe("go-approvals");
    // Too late for "g a": it is "a" alone.
    expect(reader.read(press("g", 10_000), false)).toBeUndefined();
    expect(reader.read(press("a", 13_000), false)).toBe("next-needing");
  });

  it("leaves letters to who types, and keys with a modifier to the browser", () => {
    const reader = new ShortcutReader();
    expect(reader.read(press("n", 0), true)).toBeUndefined();
    expect(reader.read(press("n", 1, { ctrlKey: true }), false)).toBeUndefined();
    expect(reader.read(press("n", 2, { defaultPrevented: true }), false)).toBeUndefined();
    expect(reader.read(press("n", 3), false)).toBe("new-session");
  });

  it("has each key once in a section", () => {
    const keys = shortcuts.map((shortcut) => `${shortcut.section} ${shortcut.keys}`);
    expect(new Set(keys).size).toBe(keys.length);
  });
});
