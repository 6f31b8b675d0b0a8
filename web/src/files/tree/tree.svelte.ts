import type { CommandData, FsChanges, FsEntry } from "@quarterdeck/client";
import { errorText } from "../../lib/format.ts";
import { onMachine } from "../machine.ts";
import { ancestorsOf, join, parentOf } from "../paths.ts";

/** Entries of one page of a directory. */
const PAGE = 500;
const PAGE_MAX = 5000;

/** Changes that come close together are looked at together. */
const REFRESH_PAUSE_MS = 150;

/** A file or directory in the tree. A directory's children are read when it is opened. */
export class TreeNode {
  readonly path: string;
  readonly name: string;
  readonly isDir: boolean;
  readonly isSymlink: boolean;
  readonly level: number;
  size = $state<number>();
  isOpen = $state(false);
  isLoading = $state(false);
  error = $state<string>();
  children = $state.raw<TreeNode[]>();
  /** How many entries the directory has; more than are read when it is large. */
  total = $state(0);
  nextOffset = $state<number>();

  constructor(path: string, entry: FsEntry, level: number) {
    this.path = path;
    this.name = entry.name;
    this.isDir = entry.is_dir;
    this.isSymlink = entry.is_symlink;
    this.level = level;
    this.size = entry.size_bytes;
  }
}

/** A line of the tree on the screen: an entry, or the way to the rest of a large directory. */
export type TreeRow = { kind: "entry"; node: TreeNode } | { kind: "more"; node: TreeNode } | { kind: "error"; node: TreeNode };

/** The directory of a session, as far as somebody has looked into it. */
export class FileTree {
  readonly sessionId: string;
  readonly root: TreeNode;
  showsHidden = $state(false);
  #stale = new Set<string>();
  #running = new Map<TreeNode, Promise<void>>();
  #waiting = new Map<TreeNode, Promise<void>>();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(sessionId: string) {
    this.sessionId = sessionId;
    this.root = new TreeNode("", { name: "", is_dir: true, is_symlink: false }, 0);
    this.root.isOpen = true;
  }

  /** What is on the screen, top to bottom. */
  get rows(): TreeRow[] {
    return rowsBelow(this.root);
  }

  find(path: string): TreeNode | undefined {
    if (path === "") return this.root;
    return this.find(parentOf(path))?.children?.find((node) => node.path === path);
  }

  async open(node: TreeNode): Promise<void> {
    node.isOpen = true;
    if (!node.children) await this.read(node);
  }

  close(node: TreeNode): void {
    node.isOpen = false;
  }

  /** Opens all directories above a path, so that it is seen. */
  async reveal(path: string): Promise<TreeNode | undefined> {
    if (!this.root.children) await this.read(this.root);
    for (const directory of ancestorsOf(path)) {
      const node = await this.#look(directory);
      if (!node?.isDir) return undefined;
      await this.open(node);
    }
    return this.#look(path);
  }

  /** Finds an entry; one that is not there may have come since its directory was read. */
  async #look(path: string): Promise<TreeNode | undefined> {
    const known = this.find(path);
    const parent = this.find(parentOf(path));
    if (known || !parent) return known;
    await this.read(parent);
    return this.find(path);
  }

  /** Reads a directory anew; what was opened below it stays open. While it is being read, once more afterwards. */
  read(node: TreeNode): Promise<void> {
    const waiting = this.#waiting.get(node);
    if (waiting) return waiting;
    const running = this.#running.get(node);
    const mine = (running ?? Promise.resolve()).then(() => {
      this.#waiting.delete(node);
      const now = this.#readNow(node).finally(() => this.#running.get(node) === now && this.#running.delete(node));
      this.#running.set(node, now);
      return now;
    });
    this.#waiting.set(node, mine);
    return mine;
  }

  async #readNow(node: TreeNode): Promise<void> {
    const limit = Math.min(PAGE_MAX, Math.max(PAGE, node.children?.length ?? 0));
    await this.#readPage(node, 0, limit, (page) => {
      const known = new Map(node.children?.map((child) => [child.name, child]));
      node.children = page.entries.map((entry) => this.#keep(known.get(entry.name), node, entry));
      node.total = page.total;
    });
  }

  /** The next entries of a large directory. */
  async readMore(node: TreeNode): Promise<void> {
    if (node.isLoading || node.nextOffset === undefined) return;
    await this.#readPage(node, node.nextOffset, PAGE_MAX, (page) => {
      const known = new Set(node.children?.map((child) => child.name));
      const added = page.entries.filter((entry) => !known.has(entry.name));
      node.children = [...(node.children ?? []), ...added.map((entry) => this.#keep(undefined, node, entry))];
    });
  }

  async #readPage(node: TreeNode, offset: number, limit: number, take: (page: CommandData["fs.list"]) => void): Promise<void> {
    node.isLoading = true;
    try {
      const page = await this.#list(node, offset, limit);
      take(page);
      node.nextOffset = page.next_offset;
      node.error = undefined;
    } catch (error) {
      node.error = errorText(error);
    } finally {
      node.isLoading = false;
    }
  }

  /** All that is shown, read again. */
  async refresh(): Promise<void> {
    const open = openBelow(this.root);
    for (const node of open) await this.read(node);
  }

  /** Directories where something came, changed or went are read again if somebody has looked into them. */
  changed(changes: FsChanges): void {
    if (changes.overflow) openBelow(this.root).forEach((node) => this.#stale.add(node.path));
    for (const change of changes.changes) this.#stale.add(parentOf(change.path));
    this.#plan();
  }

  forget(): void {
    clearTimeout(this.#timer);
  }

  #plan(): void {
    if (this.#stale.size === 0) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      const stale = [...this.#stale];
      this.#stale.clear();
      const nodes = stale.map((path) => this.find(path)).filter((node) => node?.children !== undefined);
      void Promise.all(nodes.map((node) => node && this.read(node))).then(() => this.#plan());
    }, REFRESH_PAUSE_MS);
  }

  #list(node: TreeNode, offset: number, limit: number) {
    const path = node.path === "" ? "." : node.path;
    return onMachine(this.sessionId, "fs.list", { path, offset, limit, include_hidden: this.showsHidden });
  }

  #keep(known: TreeNode | undefined, parent: TreeNode, entry: FsEntry): TreeNode {
    if (known && known.isDir === entry.is_dir && known.isSymlink === entry.is_symlink) {
      known.size = entry.size_bytes;
      return known;
    }
    return new TreeNode(join(parent.path, entry.name), entry, parent.level + 1);
  }
}

function openBelow(node: TreeNode): TreeNode[] {
  if (!node.isOpen || !node.children) return node.path === "" ? [node] : [];
  return [node, ...node.children.flatMap(openBelow)];
}

function rowsBelow(node: TreeNode): TreeRow[] {
  const rows: TreeRow[] = [];
  for (const child of node.children ?? []) {
    rows.push({ kind: "entry", node: child });
    if (child.isDir && child.isOpen) rows.push(...rowsBelow(child));
  }
  if (node.error) rows.push({ kind: "error", node });
  else if (node.nextOffset !== undefined) rows.push({ kind: "more", node });
  return rows;
}

const trees = new Map<string, FileTree>();

/** The tree of a session stays as it was left while the app is open. */
export function treeOf(sessionId: string): FileTree {
  let tree = trees.get(sessionId);
  if (!tree) trees.set(sessionId, (tree = new FileTree(sessionId)));
  return tree;
}

