import type { CommandParams } from "@quarterdeck/client";
import { toast } from "../lib/app.svelte.ts";
import { errorText } from "../lib/format.ts";
import { askText, confirm } from "../lib/dialogs.svelte.ts";
import { onMachine } from "./machine.ts";
import { join, nameOf, parentOf, tidy } from "./paths.ts";

/** What a person does to entries of the tree. Each says where the entry is afterwards, or nothing if nothing happened. */

type ChangeCommand = "fs.write" | "fs.create_directory" | "fs.rename" | "fs.move" | "fs.copy" | "fs.delete";

async function change<C extends ChangeCommand>(sessionId: string, command: C, parameters: CommandParams[C], failure: string): Promise<boolean> {
  try {
    await onMachine(sessionId, command, parameters);
    return true;
  } catch (error) {
    toast(`${failure}: ${errorText(error)}`, { kind: "error" });
    return false;
  }
}

async function askPath(title: string, label: string, action: string, value = ""): Promise<string | undefined> {
  const typed = await askText({ title, label, value, action });
  if (typed === undefined) return undefined;
  const path = tidy(typed);
  if (!path) toast("That path is outside the session's directory. Use a relative path without “..”.", { kind: "error" });
  return path;
}

function where(directory: string): string {
  return directory === "" ? "the session's directory" : directory;
}

export async function newFile(sessionId: string, directory: string): Promise<string | undefined> {
  const name = await askPath("New file", `Name in ${where(directory)}`, "Create");
  if (!name) return undefined;
  const path = join(directory, name);
  const parameters = { path, content: "", expected_hash: "", create_parents: true };
  return (await change(sessionId, "fs.write", parameters, "The file was not created")) ? path : undefined;
}

export async function newFolder(sessionId: string, directory: string): Promise<string | undefined> {
  const name = await askPath("New folder", `Name in ${where(directory)}`, "Create");
  if (!name) return undefined;
  const path = join(directory, name);
  const parameters = { path, create_parents: true };
  return (await change(sessionId, "fs.create_directory", parameters, "The folder was not created")) ? path : undefined;
}

export async function rename(sessionId: string, path: string): Promise<string | undefined> {
  const name = await askPath(`Rename ${nameOf(path)}`, "New name", "Rename", nameOf(path));
  if (!name || name === nameOf(path)) return undefined;
  const to = join(parentOf(path), name);
  return (await change(sessionId, "fs.rename", { from: path, to }, "It was not renamed")) ? to : undefined;
}

export async function move(sessionId: string, path: string): Promise<string | undefined> {
  const to = await askPath(`Move ${nameOf(path)}`, "New path in the session's directory", "Move", path);
  if (!to || to === path) return undefined;
  const parameters = { from: path, to, create_parents: true };
  return (await change(sessionId, "fs.move", parameters, "It was not moved")) ? to : undefined;
}

export async function copy(sessionId: string, path: string): Promise<string | undefined> {
  const to = await askPath(`Copy ${nameOf(path)}`, "Path of the copy in the session's directory", "Copy", copyName(path));
  if (!to || to === path) return undefined;
  const parameters = { from: path, to, create_parents: true };
  return (await change(sessionId, "fs.copy", parameters, "It was not copied")) ? to : undefined;
}

export async function remove(sessionId: string, path: string, isDir: boolean): Promise<boolean> {
  const isWanted = await confirm({
    title: `Delete ${nameOf(path)}?`,
    text: isDir ? `The folder ${path} and everything in it will be deleted permanently.` : `The file ${path} will be deleted permanently.`,
    action: "Delete",
    danger: true,
  });
  return isWanted && change(sessionId, "fs.delete", { path, recursive: isDir }, "It was not deleted");
}

export async function copyPath(path: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(path);
    toast("Copied.", { kind: "success" });
  } catch {
    toast(`The browser does not let this page write to the clipboard. The path is ${path}`, { kind: "error" });
  }
}

function copyName(path: string): string {
  const name = nameOf(path);
  const at = name.lastIndexOf(".");
  const named = at > 0 ? `${name.slice(0, at)}-copy${name.slice(at)}` : `${name}-copy`;
  return join(parentOf(path), named);
}
