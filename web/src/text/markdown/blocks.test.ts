import { describe, expect, it } from "vitest";
import { BlockSplitter, grouped } from "./blocks.ts";
import { renderMarkdown, renderToken } from "./html.ts";

const TEXT = [
  "# Title",
  "A paragraph with **bold** text\nover two lines.",
  "- one\n- two\n\n- three, loose",
  "```ts\nconst a = 1;\n\nconst b = 2;\n```",
  "| a | b |\n|---|---|\n| 1 | 2 |",
  "> quoted",
  "The end.",
].join("\n\n");

function html(splitter: BlockSplitter, text: string, isDone: boolean): string {
  return splitter.update(text, isDone).map((block) => renderToken(block.token)).join("");
}

describe("BlockSplitter", () => {
  it("ends with what the whole text is, however it arrives", () => {
    for (const step of [1, 3, 7, 50]) {
      const splitter = new BlockSplitter();
      for (let end = step; end < TEXT.length; end += step) splitter.update(TEXT.slice(0, end), false);
      expect(html(splitter, TEXT, true)).toBe(renderMarkdown(TEXT));
    }
  });

  it("keeps finished blocks as they are", () => {
    const splitter = new BlockSplitter();
    const first = splitter.update("One.\n\nTwo.\n\nThr", false);
    const second = splitter.update("One.\n\nTwo.\n\nThree and more", false);
    expect(second[0]).toBe(first[0]);
    expect(first.at(-1)?.isOpen).toBe(true);
    expect(second).toHaveLength(3);
  });

  it("shows an open fence as code from its first line on", () => {
    const splitter = new BlockSplitter();
    const blocks = splitter.update("Look:\n\n```rust\nfn main() {\n  // # no heading\n", false);
    expect(blocks.at(-1)?.token).toMatchObject({ type: "code", lang: "rust", text: "fn main() {\n  // # no heading" });
    expect(html(splitter, "Look:\n\n```rust\nfn main() {}\n```\n\nDone", true)).toContain("language-rust");
  });

  it("does not take a line that is only begun for the end of a list", () => {
    const splitter = new BlockSplitter();
    splitter.update("- a\n\n-", false);
    const blocks = splitter.update("- a\n\n- b", true);
    expect(blocks).toHaveLength(1);
  });

  it("finds where links go that are explained at the end", () => {
    const text = "See [the guide][g].\n\nMore.\n\n[g]: https://example.org/guide\n";
    const splitter = new BlockSplitter();
    for (let end = 1; end < text.length; end += 4) splitter.update(text.slice(0, end), false);
    expect(html(splitter, text, true)).toContain('href="https://example.org/guide"');
  });

  it("starts over when the text is another one", () => {
    const splitter = new BlockSplitter();
    splitter.update("First answer.\n\nMore of it.\n\nAnd", false);
    expect(html(splitter, "Another.", true)).toBe(renderMarkdown("Another."));
  });

  it("copes with controls in the middle", () => {
    const text = "One\u0000.\n\nTwo\u202e.\r\n\r\nThree.";
    const splitter = new BlockSplitter();
    for (let end = 1; end < text.length; end += 1) splitter.update(text.slice(0, end), false);
    expect(html(splitter, text, true)).toBe(renderMarkdown(text));
  });

  it("draws only the end of a block that grows without end, and all of it when it is done", () => {
    const text = "word ".repeat(20_000);
    const splitter = new BlockSplitter();
    expect(html(splitter, text, false).length).toBeLessThan(30_000);
    expect(html(splitter, text, true)).toBe(renderMarkdown(text));
    const code = `\`\`\`txt\n${text}`;
    expect(html(new BlockSplitter(), code, false).length).toBeLessThan(30_000);
  });

  it("takes a long answer piece by piece", () => {
    const paragraph = `${"words and words ".repeat(20)}\n\n`;
    const splitter = new BlockSplitter();
    let text = "";
    for (let count = 0; count < 400; count += 1) {
      text += paragraph;
      splitter.update(text, false);
    }
    expect(splitter.update(text, true)).toHaveLength(400);
  }, 30_000);
});

describe("groups of blocks", () => {
  it("are the same as before but for the one that grows", () => {
    const splitter = new BlockSplitter();
    const text = "One.\n\n".repeat(100);
    const first = grouped(splitter.update(text, false), []);
    expect(first.length).toBeGreaterThan(3);
    expect(first.flat()).toHaveLength(100);
    const second = grouped(splitter.update(`${text}Two`, false), first);
    expect(second.flat()).toHaveLength(101);
    expect(second.slice(0, -1).every((group, place) => group === first[place])).toBe(true);
    expect(second.at(-1)).not.toBe(first.at(-1));
  });
});
