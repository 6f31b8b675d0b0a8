import { expect, test } from "vitest";
import { bounds, daysOf, lastDays, rangeOf } from "./ranges.ts";
import { labelled, ticks } from "./scale.ts";

const now = new Date(2026, 10, 15, 22, 30);

test("a range has every day, over the end of a month", () => {
  const range = lastDays(30, now);
  expect(range).toEqual({ from: "2026-10-17", to: "2026-11-15" });
  const days = daysOf(range);
  expect([days.length, days[15], days.at(-1)]).toEqual([30, "2026-11-01", "2026-11-15"]);
  expect(bounds({ from: "2026-11-15", to: "2026-11-15" })).toEqual({
    from: new Date(2026, 10, 15).getTime(),
    to: new Date(2026, 10, 16).getTime(),
  });
});

test("what an address says is checked", () => {
  const read = (text: string) => rangeOf(new URLSearchParams(text), now);
  expect(read("")).toEqual({ range: lastDays(30, now), preset: "30" });
  expect(read("range=7").range.from).toBe("2026-11-09");
  expect(read("from=2026-11-01&to=2026-11-02")).toEqual({ range: { from: "2026-11-01", to: "2026-11-02" }, preset: "custom" });
  expect(read("from=2026-11-09&to=2026-11-02").preset).toBe("30");
  expect(read("from=2026-02-31&to=2026-11-02").preset).toBe("30");
  expect(daysOf(read("from=1900-01-01&to=2026-11-02").range).length).toBeLessThanOrEqual(1100);
});

test("the side of a chart has round numbers", () => {
  expect(ticks(0)).toEqual([0, 1]);
  expect(ticks(7)).toEqual([0, 2, 4, 6, 8]);
  expect(ticks(0.03)).toEqual([0, 0.01, 0.02, 0.03]);
  expect(ticks(1_234_567).at(-1)).toBe(1_500_000);
});

test("labels keep their distance and end at the last day", () => {
  expect(labelled(7, 10)).toEqual([0, 1, 2, 3, 4, 5, 6]);
  expect(labelled(30, 6)).toEqual([4, 9, 14, 19, 24, 29]);
  expect(labelled(0, 6)).toEqual([]);
});
