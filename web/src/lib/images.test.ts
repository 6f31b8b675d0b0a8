import { expect, it } from "vitest";
import { isShowable } from "./images.ts";

it("shows no drawings with scripts", () => {
  expect(isShowable("image/png")).toBe(true);
  expect(isShowable("image/svg+xml")).toBe(false);
  expect(isShowable("text/html")).toBe(false);
});
