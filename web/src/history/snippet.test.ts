import { expect, test } from "vitest";
import { piecesOf } from "./snippet.ts";

function shown(snippet: string, query: string): string {
  return piecesOf(snippet, query).map((piece) => (piece.isFound ? `<${piece.text}>` : piece.text)).join("");
}

test("the words found are set apart", () => {
  expect(shown("…the [deck] is [wet]…", "deck wet")).toBe("…the <deck> is <wet>…");
  expect(shown("[Crème] brûlée", "creme")).toBe("<Crème> brûlée");
  expect(shown("a [hp-z8] machine", "hp-z8")).toBe("a <hp-z8> machine");
  expect(shown("[migrations] run", "migrat*")).toBe("<migrations> run");
});

test("brackets of the text itself stay", () => {
  expect(shown("rows[0] = [deck]", "deck")).toBe("rows[0] = <deck>");
  expect(shown("see [[deck]](url)", "deck")).toBe("see [<deck>](url)");
  expect(shown("[ ] todo", "todo")).toBe("[ ] todo");
});

test("markup is text", () => {
  expect(piecesOf("<b>[deck]</b>", "deck")).toEqual([
    { text: "<b>", isFound: false },
    { text: "deck", isFound: true },
    { text: "</b>", isFound: false },
  ]);
});
