import type { SessionSummary } from "@quarterdeck/client";
import { describe, expect, it } from "vitest";
import { fleetGroups, type FleetQuery, harnessesOf } from "./query.ts";

function session(id: string, more: Partial<SessionSummary> = {}): SessionSummary {
  return {
    session_id: id,
    runner_id: "local",
    harness: "pi",
    state: "idle",
    created_at: 1,
    last_activity: 1,
    seq: 1,
    message_count: 0,
    subscriber_count: 0,
    pending_input_count: 0,
    ...more,
  };
}

const all: FleetQuery = { text: "", runner: "", harness: "", group: "", sort: "activity" };

function ids(query: Partial<FleetQuery>, sessions: SessionSummary[]): Record<string, string[]> {
  const groups = fleetGroups(sessions, { ...all, ...query }, (runnerId) => `${runnerId}-host`);
  return Object.fromEntries(groups.map(({ group, sessions: own }) => [group, own.map((one) => one.session_id)]));
}

describe("the fleet", () => {
  const sessions = [
    session("a", { state: "working", last_activity: 5, title: "Fix the build", cost_usd: 2 }),
    session("b", { pending_input_count: 1, last_activity: 9 }),
    session("c", { state: "failed", last_activity: 3, runner_id: "box" }),
    session("d", { state: "closed", cwd: "/srv/app" }),
    session("e", { state: "dormant", harness: "pty", run_tool: "codex", last_activity: 2 }),
    session("f", { state: "offline", last_activity: 4 }),
  ];

  it("groups by what a person must know", () => {
    expect(ids({}, sessions)).toEqual({ needs: ["b", "c"], working: ["a"], idle: ["f", "e"], done: ["d"] });
  });

  it("finds all words, in any field", () => {
    expect(ids({ text: "build FIX" }, sessions)).toEqual({ needs: [], working: ["a"], idle: [], done: [] });
    expect(ids({ text: "box-host" }, sessions).needs).toEqual(["c"]);
    expect(ids({ text: "srv" }, sessions).done).toEqual(["d"]);
  });

  it("filters by runner and by the program that people know", () => {
    expect(ids({ runner: "box" }, sessions)).toEqual({ needs: ["c"], working: [], idle: [], done: [] });
    expect(ids({ harness: "codex" }, sessions).idle).toEqual(["e"]);
    expect(harnessesOf(sessions)).toEqual(["codex", "pi"]);
  });

  it("sorts", () => {
    const some = [session("x", { title: "b", cost_usd: 1 }), session("y", { title: "A", cost_usd: 3, created_at: 9 })];
    expect(ids({ sort: "title" }, some).idle).toEqual(["y", "x"]);
    expect(ids({ sort: "cost" }, some).idle).toEqual(["y", "x"]);
    expect(ids({ sort: "created" }, some).idle).toEqual(["y", "x"]);
  });
});
