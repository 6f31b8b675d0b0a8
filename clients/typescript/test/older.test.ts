import assert from "node:assert/strict";
import { test } from "node:test";
import { limitOf } from "../src/shared/older.ts";

test("a limit is read from the sentence only where the server knows no codes", () => {
  assert.equal(limitOf({ error: "Too many pending commands for this client (max 16)" }), 16);
  assert.equal(limitOf({ error: "Message size 700 exceeds limit 500" }), 500);
  assert.equal(limitOf({ error: "The disk is full" }), undefined);
  assert.equal(limitOf({}), undefined);
  assert.equal(limitOf({ error: "Wait (max 7)", code: "too_many_in_flight", limit: 1024 }), 1024);
  assert.equal(limitOf({ error: "Wait (max 7)", code: "too_many_in_flight" }), undefined);
});
