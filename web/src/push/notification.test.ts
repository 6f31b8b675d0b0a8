import { expect, test } from "vitest";
import { isResolution, notificationOf, pathOf, readPayload, shows, tagOf } from "./notification.ts";

test("without content a notification says only that somebody is needed", () => {
  const { title, options } = notificationOf(readPayload('{"kind":"approval","session_id":"s1","tag":"q:1","badge":2}'));
  expect(title).toBe("An agent asks for approval");
  expect(options.body).toContain("Open Quarterdeck");
  expect(options.actions).toEqual([]);
  expect(options.data).toEqual({ kind: "approval", path: "/s/s1", sessionId: "s1" });
});

test("an approval that can be answered has both answers", () => {
  const text = '{"kind":"approval","session_id":"s1","tag":"q","request_id":"r","answer_token":"t","title":"Fix it","body":"rm -r build"}';
  const { title, options } = notificationOf(readPayload(text));
  expect([title, options.body, options.tag]).toEqual(["Fix it", "rm -r build", "q"]);
  expect(options.actions.map(({ action }) => action)).toEqual(["approve", "deny"]);
  expect(options.data.answerToken).toBe("t");
});

test("an end says how it ended", () => {
  expect(notificationOf({ kind: "done", title: "Fix it", body: "All green." }).title).toBe("Done: Fix it");
  expect(notificationOf({ kind: "failed", title: "Fix it" }).title).toBe("Failed: Fix it");
});

test("only questions stay and ring again", () => {
  expect(notificationOf({ kind: "question", tag: "q" }).options.requireInteraction).toBe(true);
  expect(notificationOf({ kind: "done", tag: "d" }).options.renotify).toBe(false);
});

test("whatever comes is shown as something", () => {
  for (const text of [undefined, "", "nonsense", "null", "7", '{"kind":9,"title":{}}']) {
    expect(notificationOf(readPayload(text)).title).toBe("Quarterdeck");
  }
  expect(tagOf(readPayload('{"kind":"done","session_id":"s"}'))).toBe("done:s");
});

test("a resolution is known", () => {
  expect(isResolution(readPayload('{"kind":"resolved","tag":"q","badge":0}'))).toBe(true);
  expect(readPayload('{"kind":"resolved","badge":-1}').badge).toBeUndefined();
});

test("a page shows a session when its address is of it", () => {
  expect(pathOf("a b")).toBe("/s/a%20b");
  expect(shows("https://hub/s/s1", "s1")).toBe(true);
  expect(shows("https://hub/s/s1/files/x", "s1")).toBe(true);
  expect(shows("https://hub/s/s11", "s1")).toBe(false);
  expect(shows("https://hub/", "s1")).toBe(false);
  expect(shows("https://hub/", undefined)).toBe(false);
});
