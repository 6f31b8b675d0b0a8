import type { InterviewQuestion } from "@quarterdeck/client";
import { expect, it } from "vitest";
import { problemsOf, responsesOf, startValues } from "./interview.ts";

const QUESTIONS: InterviewQuestion[] = [
  { id: "name", type: "text", question: "Name?", required: true },
  { id: "count", type: "number", question: "How many?", default: 3 },
  { id: "sure", type: "confirm", question: "Sure?" },
  { id: "colours", type: "multiselect", question: "Which?", options: ["red", "green"], default: ["red"] },
  { id: "size", type: "select", question: "Size?", options: ["s", "m"] },
];

it("begins with what the asker proposes", () => {
  expect(startValues(QUESTIONS)).toEqual({ name: "", count: "3", sure: false, colours: ["red"], size: "" });
});

it("sends numbers as numbers and nothing for what is empty", () => {
  const values = { ...startValues(QUESTIONS), name: "ann" };
  expect(responsesOf(QUESTIONS, values)).toEqual({ name: "ann", count: 3, sure: false, colours: ["red"] });
});

it("says what is missing", () => {
  expect(problemsOf(QUESTIONS, { name: "", count: "x" })).toEqual({ name: "This needs an answer.", count: "This must be a number." });
  expect(problemsOf(QUESTIONS, { name: "ann", count: "" })).toEqual({});
});
