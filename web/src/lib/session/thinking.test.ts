import type { ModelInfo } from "@quarterdeck/client";
import { expect, test } from "vitest";
import { levelName, thinkingLevels } from "./thinking.ts";

const MODELS: ModelInfo[] = [
  { provider: "one", model_id: "thinker", thinking_levels: ["off", "low", "max"] },
  { provider: "one", model_id: "talker", thinking_levels: ["off"] },
  { provider: "other", model_id: "thinker" },
];
const USUAL = ["off", "minimal", "low", "medium", "high", "xhigh"];

test("a model has the levels it says", () => {
  expect(thinkingLevels(MODELS, { provider: "one", model_id: "thinker" })).toEqual(["off", "low", "max"]);
  expect(thinkingLevels(MODELS, { provider: "one", model_id: "talker" })).toEqual(["off"]);
});

test("a model that says nothing, or that nobody knows, has the usual levels", () => {
  expect(thinkingLevels(MODELS, { provider: "other", model_id: "thinker" })).toEqual(USUAL);
  expect(thinkingLevels(MODELS, { provider: "other", model_id: "talker" })).toEqual(USUAL);
  expect(thinkingLevels([], undefined)).toEqual(USUAL);
});

test("levels have names for people", () => {
  expect(["xhigh", "max"].map(levelName)).toEqual(["very high", "max"]);
});
