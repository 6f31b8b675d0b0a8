import type { Answered } from "@quarterdeck/client";
import { expect, test } from "vitest";

import { answeredText } from "./answered.ts";

const ASKED: Answered = {
  request: { type: "input", request_id: "q", title: "Name?" },
  outcome: "answered",
  userId: "ann",
  at: 0,
  seq: 1,
  afterIdx: 0,
};

test("the row of a settled question says what was answered", () => {
  expect(answeredText({ ...ASKED, answer: "Ada" }, "bob")).toBe("Name? · answered by ann: Ada");
  expect(answeredText({ ...ASKED, answer: "Ada" }, "ann")).toBe("Name? · answered by you: Ada");
  expect(answeredText({ ...ASKED, decision: "deny", answer: "not on a Friday" })).toBe("Name? · denied by ann: not on a Friday");
  expect(answeredText(ASKED), "a password is not told").toBe("Name? · answered by ann");
});

test("a long answer is cut in its row, at whole characters", () => {
  const whole = "😀".repeat(1000);
  expect(answeredText({ ...ASKED, answer: whole })).toBe(`Name? · answered by ann: ${whole}`);
  expect(answeredText({ ...ASKED, answer: `${whole}x` })).toBe(`Name? · answered by ann: ${whole}…`);
});
