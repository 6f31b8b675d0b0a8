import { describe, expect, it } from "vitest";
import { operationOf, type Permission, valueText, verbOf } from "./operation.ts";

function permission(metadata: unknown): Permission {
  return { type: "permission", request_id: "q1", title: "Approve?", metadata };
}

function gate(op_tool: string, op_args: unknown): Permission {
  return permission({ source: "gate", reason: "permission", op_tool, op_args, principal: "ann", actor: "web" });
}

describe("operationOf", () => {
  it("finds the command and keeps all else that was asked", () => {
    const operation = operationOf(gate("rpc.bash", { command: "rm -rf /tmp/x\n", timeout_ms: 5, stdin: "y" }));
    expect(operation).toMatchObject({ command: "rm -rf /tmp/x\n", source: "gate", principal: "ann", actor: "web", tool: "rpc.bash" });
    expect(operation.rest).toEqual([["timeout_ms", 5], ["stdin", "y"]]);
    expect(verbOf(operation)).toBe("Run a command");
  });

  it("finds what is written where", () => {
    const operation = operationOf(gate("rpc.fs.write", { path: "a.txt", content: "new", create_parents: true }));
    expect(operation).toMatchObject({ path: "a.txt", content: "new", rest: [["create_parents", true]] });
  });

  it("shows bytes as arguments, not as text", () => {
    const operation = operationOf(gate("rpc.fs.write", { path: "a.bin", content: "AAAA", encoding: "base64" }));
    expect(operation.content).toBeUndefined();
    expect(operation.rest.map(([name]) => name)).toEqual(["path", "content", "encoding"]);
  });

  it("takes the words of other agents", () => {
    expect(operationOf(permission({ tool_name: "Bash", tool_input: { command: "ls" } })).command).toBe("ls");
    expect(operationOf(permission({ toolName: "Edit", input: { file_path: "x", old_string: "a", new_string: "b" } })).changes).toEqual([
      { before: "a", after: "b" },
    ]);
  });

  it("leaves nothing out of what it does not know", () => {
    expect(operationOf(permission({ kind: "odd", nested: { deep: 1 } })).rest).toEqual([["kind", "odd"], ["nested", { deep: 1 }]]);
    expect(operationOf(permission({ op_tool: "x", op_args: ["list"] })).rest).toEqual([["arguments", ["list"]]]);
    expect(operationOf(gate("rpc.x", { command: ["a", "b"] })).rest).toEqual([["command", ["a", "b"]]]);
    expect(operationOf(permission(undefined)).rest).toEqual([]);
    expect(valueText({ a: 1 })).toBe('{\n  "a": 1\n}');
  });
});
