import { expect, test } from "vitest";
import { fileAddress, tidy } from "../paths.ts";
import { fromField, lineEndOf, PageDecoder, toField } from "./text.ts";

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

test("a character and a line end cut between pages are whole again", () => {
  const whole = bytes("a\r\nü\r\nz");
  for (let cut = 1; cut < whole.length; cut += 1) {
    const decoder = new PageDecoder();
    const text = decoder.decode(whole.slice(0, cut), false).text + decoder.decode(whole.slice(cut), true).text;
    expect(text).toBe("a\r\nü\r\nz");
  }
});

test("what is no text says so", () => {
  expect(new PageDecoder().decode(Uint8Array.of(1, 0, 2), true).isBinary).toBe(true);
  expect(new PageDecoder().decode(Uint8Array.of(0xff, 0xfe), true).isBinary).toBe(true);
});

test("line ends survive a text field", () => {
  const text = "\ufeffone\r\ntwo\r\n";
  const { lineEnd, isMixed } = lineEndOf(text);
  expect(isMixed).toBe(false);
  expect(fromField(toField(text), lineEnd)).toBe(text);
  expect(lineEndOf("a\r\nb\nc\n").isMixed).toBe(true);
});

test("paths of people are tidied, and none leads out", () => {
  expect(tidy(" /a//b/./c ")).toBe("a/b/c");
  expect(tidy("../x")).toBeUndefined();
  expect(tidy("")).toBeUndefined();
  expect(fileAddress("s 1", "a b/ü#.txt", 3)).toBe("/s/s%201/files/a%20b/%C3%BC%23.txt?line=3");
});
