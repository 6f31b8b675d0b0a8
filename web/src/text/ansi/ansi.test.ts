import { describe, expect, it } from "vitest";
import { parseAnsi } from "./ansi.ts";

const texts = (input: string): string[] => parseAnsi(input).map((line) => line.map((span) => span.text).join(""));

describe("parseAnsi", () => {
  it("gives plain text as it is, a line for each line", () => {
    expect(parseAnsi("one\ntwo\n")).toEqual([[{ text: "one", classes: "" }], [{ text: "two", classes: "" }]]);
    expect(texts("a\r\nb")).toEqual(["a", "b"]);
    expect(parseAnsi("")).toEqual([[]]);
  });

  it("knows the sixteen colours and their end", () => {
    expect(parseAnsi("\u001b[31mred\u001b[0m \u001b[92;44;1mgreen")).toEqual([
      [
        { text: "red", classes: "ansi-fg-1" },
        { text: " ", classes: "" },
        { text: "green", classes: "ansi-fg-10 ansi-bg-4 ansi-bold" },
      ],
    ]);
  });

  it("knows 256 colours and true colour, with semicolons and colons", () => {
    const [line] = parseAnsi("\u001b[38;5;196ma\u001b[38;5;3mb\u001b[48;2;1;2;3mc\u001b[0;38:2::255:0:16md");
    expect(line).toEqual([
      { text: "a", classes: "", color: "#ff0000" },
      { text: "b", classes: "ansi-fg-3" },
      { text: "c", classes: "ansi-fg-3", background: "#010203" },
      { text: "d", classes: "", color: "#ff0010" },
    ]);
  });

  it("swaps colours for inverse, and keeps styles over lines", () => {
    expect(parseAnsi("\u001b[7;31mx\ny\u001b[27mz")).toEqual([
      [{ text: "x", classes: "ansi-bg-1" }],
      [{ text: "y", classes: "ansi-bg-1" }, { text: "z", classes: "ansi-fg-1" }],
    ]);
    expect(parseAnsi("\u001b[7mx")).toEqual([[{ text: "x", classes: "ansi-fg-inverse ansi-bg-inverse" }]]);
  });

  it("writes over a line as a progress bar does", () => {
    expect(texts("10%\r50%\r100%\ndone")).toEqual(["100%", "done"]);
    expect(texts("loading…\r\u001b[Kok")).toEqual(["ok"]);
    expect(texts("abc\b\bX")).toEqual(["aXc"]);
  });

  it("drops titles, links, cursor moves and unknown sequences", () => {
    expect(texts("\u001b]0;title\u0007a\u001b]8;;http://x/\u001b\\link\u001b]8;;\u001b\\ \u001b[2J\u001b[10;10Hb\u001b(B")).toEqual([
      "alink b",
    ]);
    expect(texts("\u001bPdevice\u001b\\x\u009b31my")).toEqual(["xy"]);
    expect(texts("\u001b[?25lhidden cursor\u001b[?25h")).toEqual(["hidden cursor"]);
  });

  it("shows what is left of controls and text a terminal would hide", () => {
    expect(texts("a\u0000b\u202ec")).toEqual(["a‹NUL›b‹U+202E›c"]);
    expect(parseAnsi("\u001b[8msecret")).toEqual([[{ text: "secret", classes: "ansi-dim" }]]);
  });

  it("does not hang or grow on a sequence that never ends", () => {
    expect(texts(`x\u001b]0;${"a".repeat(100_000)}`)).toEqual(["x"]);
    expect(texts(`${"\u001b[".repeat(20_000)}`)).toHaveLength(1);
  });

  it("takes much output", () => {
    const lines = parseAnsi("\u001b[32mok\u001b[0m some test name that passed\n".repeat(20_000));
    expect(lines).toHaveLength(20_000);
  }, 30_000);
});
