import { describe, expect, it } from "vitest";
import { bytes, duration, elapsed, money, plural, relative, shortPath, tokens } from "./format.ts";

describe("format", () => {
  it("durations", () => {
    expect([400, 12_000, 185_000, 7_620_000, 273_600_000].map(duration)).toEqual(["0.4 s", "12 s", "3 m 05 s", "2 h 07 m", "3 d 4 h"]);
    expect(elapsed(2_900)).toBe("2 s");
    expect(elapsed(-5)).toBe("0 s");
  });

  it("times", () => {
    const now = 1_800_000_000_000;
    expect([10, 300_000, 10_800_000, 172_800_000].map((ago) => relative(now - ago, now))).toEqual(["now", "5 m", "3 h", "2 d"]);
  });

  it("numbers", () => {
    expect([0, 950, 12_345, 99_960, 456_789, 4_600_000].map(tokens)).toEqual(["0", "950", "12.3k", "100k", "457k", "4.6M"]);
    expect([0, 0.004, 1.268, 1203.7].map(money)).toEqual(["$0.00", "<$0.01", "$1.27", "$1,204"]);
    expect([912, 4_200, 17_000_000, 1_300_000_000].map(bytes)).toEqual(["912 B", "4.2 kB", "17 MB", "1.3 GB"]);
    expect([plural(1, "message"), plural(3, "message")]).toEqual(["1 message", "3 messages"]);
  });

  it("paths", () => {
    expect([shortPath("/home/ann/work/app"), shortPath("/srv"), shortPath("/")]).toEqual(["…/work/app", "/srv", "/"]);
  });
});
