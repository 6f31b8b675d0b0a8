import { describe, expect, it } from "vitest";
import { cleanPath, expandHome, splitTyped } from "./paths.ts";

describe("directories", () => {
  it("tells what is complete from what is being typed", () => {
    expect(splitTyped("/home/ann/wo")).toEqual({ parent: "/home/ann", prefix: "wo" });
    expect(splitTyped("/ho")).toEqual({ parent: "/", prefix: "ho" });
    expect(splitTyped("work")).toEqual({ parent: "", prefix: "work" });
    expect(splitTyped("/home/")).toEqual({ parent: "/home", prefix: "" });
  });

  it("knows home and slashes", () => {
    expect([expandHome("~/x", "/home/ann"), expandHome("~x", "/home/ann"), expandHome("~", undefined)]).toEqual(["/home/ann/x", "~x", "~"]);
    expect([cleanPath("/a/b//"), cleanPath("/")]).toEqual(["/a/b", "/"]);
  });
});
