import { describe, expect, it } from "vitest";
import { fuzzy } from "./fuzzy.ts";

function best(typed: string, texts: string[]): string | undefined {
  return texts
    .map((text) => ({ text, match: fuzzy(typed, text) }))
    .filter(({ match }) => match)
    .sort((one, other) => (other.match?.score ?? 0) - (one.match?.score ?? 0))[0]?.text;
}

describe("fuzzy", () => {
  it("needs all letters in order", () => {
    expect(fuzzy("xyz", "New session")).toBeUndefined();
    expect(fuzzy("nwss", "New session")).toBeDefined();
    expect(fuzzy("sn", "ns")).toBeUndefined();
  });

  it("prefers parts of the text to scattered letters, and starts of words to middles", () => {
    expect(best("set", ["Reset everything", "Settings", "Some old test"])).toBe("Settings");
    expect(best("ns", ["Runs", "New session"])).toBe("Runs");
    expect(best("fb", ["Fabric", "Fix the build"])).toBe("Fix the build");
  });

  it("says where the letters are", () => {
    expect(fuzzy("build", "Fix the build")?.at).toEqual([8, 9, 10, 11, 12]);
    expect(fuzzy("", "anything")).toEqual({ score: 0, at: [] });
  });
});
