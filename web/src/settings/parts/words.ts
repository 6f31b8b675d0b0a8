/** Words for what the hub calls by one. */
import type { Permission, PersonRole } from "@quarterdeck/client";

export const ROLES: readonly { value: PersonRole; label: string; about: string }[] = [
  { value: "viewer", label: "Viewer", about: "Sees everything, changes nothing." },
  { value: "operator", label: "Operator", about: "Works with sessions, answers questions, uses files and shell." },
  { value: "owner", label: "Owner", about: "Everything, people and machines included." },
];

/** What the hub takes for the name of a person or a token. */
export function isName(text: string): boolean {
  return /^[A-Za-z0-9._-]{1,64}$/.test(text);
}

export function roleWords(role: string): string {
  const known = ROLES.find(({ value }) => value === role);
  return known ? `${known.label}: ${known.about.charAt(0).toLowerCase()}${known.about.slice(1)}` : role;
}

export const PERMISSIONS: readonly { value: Permission; label: string; about: string }[] = [
  { value: "view", label: "See sessions", about: "Read sessions, messages and history." },
  { value: "operate", label: "Work with sessions", about: "Start, prompt, steer, stop and delete sessions." },
  { value: "approve", label: "Answer questions", about: "Approve, deny and answer what agents ask." },
  { value: "files", label: "Use files", about: "Read and write files in the directories of sessions." },
  { value: "shell", label: "Use the shell", about: "Open terminals and run commands on runners." },
  { value: "manage", label: "Manage", about: "People, tokens of others, runners and hosts." },
];

export function permissionWords(permission: string): string {
  return PERMISSIONS.find(({ value }) => value === permission)?.label ?? permission;
}

/** "Firefox on Linux" of what a browser says of itself; programs as they say it. */
export function browserName(label: string): string {
  const browser = /(Firefox|Edg|OPR|Chrome|Safari)\//.exec(label)?.[1];
  const system = /(iPhone|iPad|Android|Windows|Macintosh|CrOS|Linux)/.exec(label)?.[1];
  if (browser === undefined && system === undefined) return label === "" ? "Unknown" : label;
  const names: Record<string, string> = { Edg: "Edge", OPR: "Opera", Macintosh: "Mac", CrOS: "Chromebook" };
  const words = [browser, system].filter((word) => word !== undefined).map((word) => names[word] ?? word);
  return browser === undefined ? `Browser on ${words[0]}` : words.join(" on ");
}
