import { expect, test } from "vitest";
import { parseUnified } from "../text/diff/diff.ts";
import { pairs } from "./colours.ts";
import { segments } from "./segments.ts";

const PATCH = `diff --git a/a.ts b/a.ts
--- a/a.ts
+++ b/a.ts
@@ -1,4 +1,4 @@
 one
-two
-three
+TWO
 four
+five
`;

test("lines that replace each other stand beside each other", () => {
  const rows = parseUnified(PATCH)[0]?.rows ?? [];
  const found = pairs(rows).map(({ left, right, wide }) => [wide ? "@@" : (left?.text ?? ""), right?.text ?? ""]);
  expect(found).toEqual([
    ["@@", ""],
    ["one", "one"],
    ["two", "TWO"],
    ["three", ""],
    ["four", "four"],
    ["", "five"],
  ]);
});

test("colours and changed words are both kept", () => {
  const colours = [
    { text: "let ", className: "tok-keyword" },
    { text: "a = 1", className: "" },
  ];
  const pieces = [
    { text: "let a", isChanged: false },
    { text: " = 1", isChanged: true },
  ];
  expect(segments("let a = 1", colours, pieces)).toEqual([
    { text: "let ", className: "tok-keyword", isChanged: false },
    { text: "a", className: "", isChanged: false },
    { text: " = 1", className: "", isChanged: true },
  ]);
  expect(segments("x", undefined, undefined)).toEqual([{ text: "x", className: "", isChanged: false }]);
});
