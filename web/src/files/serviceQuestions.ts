import type { InputRequest } from "@quarterdeck/client";

/** Whether it is asked before a change of files or before a shell command somebody wants here. */
export function isServiceQuestion(request: InputRequest): boolean {
  if (request.type !== "permission") return false;
  const { metadata } = request;
  return typeof metadata === "object" && metadata !== null && "source" in metadata && metadata.source === "gate";
}
