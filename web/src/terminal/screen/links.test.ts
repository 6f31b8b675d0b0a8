import { expect, test } from "vitest";
import { linksIn, openableAddress } from "./links.ts";
import { isReply } from "./replies.ts";

test("addresses are found without the end of their sentence", () => {
  expect(linksIn("see https://example.org/a?b=1). Or http://x.y, please")).toEqual([
    { start: 4, address: "https://example.org/a?b=1" },
    { start: 35, address: "http://x.y" },
  ]);
});

test("only addresses of the web can be opened", () => {
  expect(openableAddress("javascript:alert(1)")).toBeUndefined();
  expect(openableAddress("file:///etc/passwd")).toBeUndefined();
  expect(openableAddress("https://example.org")).toBe("https://example.org/");
});

test("what a terminal answers by itself is no typing", () => {
  for (const reply of ["\u001b[?1;2c", "\u001b[12;40R", "\u001b[0n", "\u001b]11;rgb:ffff/ffff/ffff\u001b\\", "\u001b[?2026;2$y"]) {
    expect(isReply(reply), JSON.stringify(reply)).toBe(true);
  }
  for (const key of ["a", "\r", "\u001b", "\u001b[A", "\u001bOP", "\u001b[200~text\u001b[201~", "\u001b[3~"]) {
    expect(isReply(key), JSON.stringify(key)).toBe(false);
  }
});
