import { expect, it } from "vitest";
import { entriesOf, moved, queueOf, removed, replaced } from "./queue.ts";

const QUEUE = { steering: ["a", "b"], follow_up: ["c"] };

it("is one list and two", () => {
  expect(queueOf(entriesOf(QUEUE))).toEqual(QUEUE);
});

it("changes one entry at a time", () => {
  const entries = entriesOf(QUEUE);
  expect(queueOf(removed(entries, 1))).toEqual({ steering: ["a"], follow_up: ["c"] });
  expect(queueOf(replaced(entries, 2, "d"))).toEqual({ steering: ["a", "b"], follow_up: ["d"] });
  expect(queueOf(replaced(entries, 2, "c", "steer"))).toEqual({ steering: ["a", "b", "c"], follow_up: [] });
});

it("moves entries, over the border too", () => {
  const entries = entriesOf(QUEUE);
  expect(queueOf(moved(entries, 0, 1))).toEqual({ steering: ["b", "a"], follow_up: ["c"] });
  expect(queueOf(moved(entries, 1, 1))).toEqual({ steering: ["a"], follow_up: ["b", "c"] });
  expect(queueOf(moved(entries, 2, -1))).toEqual({ steering: ["a", "b", "c"], follow_up: [] });
  expect(queueOf(moved(entries, 0, -1))).toEqual(QUEUE);
});
