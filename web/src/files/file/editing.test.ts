import { expect, test } from "vitest";
import { type Edit, indentLines, indentOf, newLine, outdentLines } from "./editing.ts";

function apply(text: string, edit: Edit | undefined): string {
  return edit ? text.slice(0, edit.from) + edit.text + text.slice(edit.to) : text;
}

test("the indent of a text is its own", () => {
  expect(indentOf("a {\n\tb\n}")).toBe("\t");
  expect(indentOf("a:\n        c\n    b\n")).toBe("    ");
  expect(indentOf("plain")).toBe("  ");
});

test("Tab indents at the cursor, or all selected lines", () => {
  expect(apply("ab", indentLines({ text: "ab", start: 1, end: 1 }, "  "))).toBe("a  b");
  const text = "one\ntwo\nthree";
  expect(apply(text, indentLines({ text, start: 1, end: 6 }, "\t"))).toBe("\tone\n\ttwo\nthree");
  expect(apply(text, indentLines({ text, start: 0, end: 4 }, "\t"))).toBe("\tone\ntwo\nthree");
});

test("Shift-Tab takes one step of indent away, also before the cursor", () => {
  const text = "    one\n  two\nthree";
  expect(apply(text, outdentLines({ text, start: 6, end: 15 }, "  "))).toBe("  one\ntwo\nthree");
  expect(apply("  x", outdentLines({ text: "  x", start: 0, end: 0 }, "  "))).toBe("x");
  expect(outdentLines({ text: "x", start: 0, end: 1 }, "  ")).toBeUndefined();
});

test("Enter keeps the indent", () => {
  const text = "  if (a) {";
  const edit = newLine({ text, start: text.length, end: text.length });
  expect(apply(text, edit)).toBe("  if (a) {\n  ");
  expect(edit.selection).toEqual([13, 13]);
});
