import { describe, expect, it } from "vitest";
import { hiddenCount, makeVisible, makeVisibleStrict, visiblePieces } from "./visible.ts";

describe("makeVisible", () => {
  it("leaves ordinary text of any language alone", () => {
    const text = "Grüße, 你好, שלום, 👩‍👩‍👧 and\ttabs\nand lines";
    expect(makeVisible(text)).toBe(text);
  });

  it("shows controls by their names", () => {
    expect(makeVisible("a\u0000b\u001b[31mc\u007f\u0008")).toBe("a‹NUL›b‹ESC›[31mc‹DEL›‹BS›");
    expect(makeVisible("line\r\nnext\rover")).toBe("line\nnext‹CR›over");
    expect(makeVisible("\u0085\u009b31m")).toBe("‹U+0085›‹U+009B›31m");
  });

  it("names every direction override, embedding and isolate", () => {
    for (const code of [0x202a, 0x202b, 0x202c, 0x202d, 0x202e, 0x2066, 0x2067, 0x2068, 0x2069]) {
      const shown = makeVisible(`a${String.fromCharCode(code)}b`);
      expect(shown).toBe(`a‹U+${code.toString(16).toUpperCase()}›b`);
    }
  });
});

describe("the strict form", () => {
  it("shows what takes no room or looks like a space", () => {
    expect(makeVisibleStrict("rm\u200b -rf\u00a0/\u2028x\ufeff")).toBe("rm‹U+200B› -rf‹U+00A0›/‹U+2028›x‹U+FEFF›");
    expect(makeVisibleStrict("a\u{e0041}b")).toBe("a‹U+E0041›b");
    expect(makeVisibleStrict("a\rb")).toBe("a‹CR›b");
  });

  it("marks the stand-ins and loses nothing else", () => {
    expect(visiblePieces("ab\u202ecd")).toEqual([
      { text: "ab", isHidden: false },
      { text: "‹U+202E›", isHidden: true },
      { text: "cd", isHidden: false },
    ]);
    expect(hiddenCount("plain text")).toBe(0);
    expect(hiddenCount("\u200b\u200b")).toBe(2);
  });
});
